"""Weights on disk: a reader of the safetensors format, and seeded random weights.

A safetensors file is eight bytes of little-endian header length, a JSON header that names each
tensor's dtype, shape and byte range, and the raw data. Nothing in it can run code.
"""

import json
import math
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import torch

from batchspec.engine.config import ModelConfig
from batchspec.engine.errors import EngineError

DTYPES: Final = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}
MAX_HEADER: Final = 100 * 2**20
"""Longest header in bytes that is read: a damaged length field must not exhaust memory."""


def read_folder(folder: Path) -> dict[str, torch.Tensor]:
    """All tensors of the folder's `*.safetensors` files by name. Raises `EngineError`."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise EngineError(f"{folder} holds no *.safetensors file")
    tensors: dict[str, torch.Tensor] = {}
    for path in files:
        for name, tensor in read_file(path):
            if name in tensors:
                raise EngineError(f"{path}: tensor {name!r} stands in two files of the folder")
            tensors[name] = tensor
    return tensors


def read_file(path: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield each tensor of one file; the data stays mapped and is paged in when used."""
    with path.open("rb") as file:
        prefix = file.read(8)
        length = int.from_bytes(prefix, "little")
        size = path.stat().st_size
        if len(prefix) < 8 or length > min(MAX_HEADER, size - 8):
            raise EngineError(f"{path} is not a safetensors file: its header length is {length}")
        try:
            header = json.loads(file.read(length))
        except ValueError as error:
            raise EngineError(f"{path}: the header is not JSON: {error}") from None
        if not isinstance(header, dict):
            raise EngineError(f"{path}: the header must be a JSON object")
        # A private mapping: tensors are views of it, and a write to one never reaches the file.
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    for name, entry in header.items():
        if name != "__metadata__":
            yield name, _tensor(path, name, entry, data, 8 + length)


def _tensor(path: Path, name: str, entry: Any, data: mmap.mmap, base: int) -> torch.Tensor:
    try:
        dtype = DTYPES[entry["dtype"]]
        shape = [int(size) for size in entry["shape"]]
        first, last = (int(at) for at in entry["data_offsets"])
    except (KeyError, TypeError, ValueError):
        raise EngineError(f"{path}: tensor {name!r} has an unsupported dtype or a damaged entry") from None
    count = math.prod(shape)
    if min([first, *shape]) < 0 or last - first != count * dtype.itemsize or base + last > len(data):
        raise EngineError(f"{path}: tensor {name!r} does not fit its byte range {first}..{last}")
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(data, dtype=dtype, count=count, offset=base + first).view(shape)


def shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """The tensors that a model of this shape has, by their published names."""
    hidden, inner = config.hidden_size, config.intermediate_size
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    out: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config.vocab_size, hidden)}
    for layer in range(config.num_layers):
        at = f"model.layers.{layer}."
        out[at + "input_layernorm.weight"] = (hidden,)
        for name, rows in (("q", queries), ("k", keys), ("v", keys)):
            out[f"{at}self_attn.{name}_proj.weight"] = (rows, hidden)
            if config.qkv_bias:
                out[f"{at}self_attn.{name}_proj.bias"] = (rows,)
        out[at + "self_attn.o_proj.weight"] = (hidden, queries)
        if config.output_bias:
            out[at + "self_attn.o_proj.bias"] = (hidden,)
        if config.qk_norm:
            out[at + "self_attn.q_norm.weight"] = (config.head_dim,)
            out[at + "self_attn.k_norm.weight"] = (config.head_dim,)
        out[at + "post_attention_layernorm.weight"] = (hidden,)
        for name, shape in (("gate", (inner, hidden)), ("up", (inner, hidden)), ("down", (hidden, inner))):
            out[f"{at}mlp.{name}_proj.weight"] = shape
            if config.mlp_bias:
                out[f"{at}mlp.{name}_proj.bias"] = shape[:1]
    out["model.norm.weight"] = (hidden,)
    if not config.tie_embeddings:
        out["lm_head.weight"] = (config.vocab_size, hidden)
    return out


def random_weights(config: ModelConfig, seed: int) -> dict[str, torch.Tensor]:
    """Float32 weights drawn from `seed`: the same model on every machine, no download.

    Matrices are scaled so that activations and logits keep a spread of about one: greedy decoding
    then has clear winners and does not fall into one repeated token.
    """
    generator = torch.Generator().manual_seed(seed)
    out: dict[str, torch.Tensor] = {}
    for name, shape in shapes(config).items():
        if len(shape) == 1 and name.endswith("weight"):
            out[name] = torch.ones(shape)
            continue
        scale = 1.0 if name.startswith("model.embed") else 1.5 / math.sqrt(shape[-1])
        out[name] = torch.randn(shape, generator=generator) * (0.1 if len(shape) == 1 else scale)
    return out
