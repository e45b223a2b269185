"""The model: one packed forward pass of the Llama family over the tokens of all members.

Tokens of all members stand end to end in one axis, so each weight is multiplied once a step whatever
the batch is made of. Attention is the only operator that looks at who owns a token; it is handed in.

Rotary embedding turns the pairs (x[i], x[i + D/2]). The rows of the query and key weights are
reordered at load so that the two members of a pair are neighbours: the turn is then one complex
product. Scores are sums over the head's features, so the order of the features does not matter.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, silu

from batchspec.engine.config import ModelConfig, Rope
from batchspec.engine.errors import EngineError
from batchspec.engine.matmul import Matrix
from batchspec.engine.weights import random_weights, read_folder, shapes

Attend = Callable[[int, Tensor, Tensor], Tensor]
"""(layer, queries [T, H, D], keys and values [T, 2, Hkv, D]) -> attention output [T, H * D]."""


@dataclass(frozen=True, slots=True)
class Layer:
    """The weights of one layer; projections that read the same input are one matrix."""

    attention_norm: Tensor
    qkv: Matrix  # [(H + 2 Hkv) D, hidden]
    query_norm: Tensor | None
    key_norm: Tensor | None
    output: Matrix  # [hidden, H D]
    mlp_norm: Tensor
    gate_up: Matrix  # [2 inner, hidden]
    down: Matrix  # [hidden, inner]


class Model:
    """A model of the Llama family, ready to run on one device."""

    def __init__(
        self, config: ModelConfig, weights: Mapping[str, Tensor], device: str = "cpu", dtype: str = "float32"
    ) -> None:
        """Take published weights by name and lay them out for the packed pass. Raises `EngineError`."""
        self.config = config
        self.device = torch.device(device)
        self.dtype = _dtype(dtype)
        take = _Weights(config, weights, self.device, self.dtype)
        self.embedding = take("model.embed_tokens.weight")
        self.layers = tuple(take.layer(index) for index in range(config.num_layers))
        self.norm = take("model.norm.weight")
        self.head = Matrix(self.embedding if config.tie_embeddings else take("lm_head.weight"))
        turns = rotations(config.rope, config.head_dim, config.max_positions)
        self.rotations = turns.to(self.device, _complex(self.dtype))

    @classmethod
    def from_folder(cls, folder: str | Path, device: str = "cpu", dtype: str = "float32") -> "Model":
        """Load `config.json` and `*.safetensors` from a local folder. Raises `EngineError`."""
        config = ModelConfig.from_folder(Path(folder))
        return cls(config, read_folder(Path(folder)), device, dtype)

    @classmethod
    def random(
        cls, config: ModelConfig | None = None, seed: int = 0, device: str = "cpu", dtype: str = "float32"
    ) -> "Model":
        """A seeded random model, tiny by default: nothing is downloaded."""
        config = config or ModelConfig()
        return cls(config, random_weights(config, seed), device, dtype)

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights that one pass reads (the embedding table is gathered, not read)."""
        return self.config.matmul_parameters * self.dtype.itemsize

    def forward(self, tokens: Tensor, positions: Tensor, rows: Tensor | None, attend: Attend) -> Tensor:
        """Logits [R, vocab] of the packed tokens [T] at their positions [T].

        `rows` [R] picks the tokens whose logits are wanted; None takes all of them.
        """
        config = self.config
        heads, kv_heads, width = config.num_heads, config.num_kv_heads, config.head_dim
        eps, count = config.rms_norm_eps, tokens.shape[0]
        turned = heads + kv_heads
        turn = self.rotations[positions].unsqueeze(1)
        hidden = self.embedding[tokens]
        for index, layer in enumerate(self.layers):
            normed = rms_norm(hidden, (config.hidden_size,), layer.attention_norm, eps)
            qkv = layer.qkv(normed).view(count, heads + 2 * kv_heads, width)
            if layer.query_norm is not None and layer.key_norm is not None:
                qkv[:, :heads] = rms_norm(qkv[:, :heads], (width,), layer.query_norm, eps)
                qkv[:, heads:turned] = rms_norm(qkv[:, heads:turned], (width,), layer.key_norm, eps)
            _rotate(qkv[:, :turned], turn)
            mixed = attend(index, qkv[:, :heads], qkv[:, heads:].view(count, 2, kv_heads, width))
            hidden = hidden + layer.output(mixed)
            normed = rms_norm(hidden, (config.hidden_size,), layer.mlp_norm, eps)
            gate, up = layer.gate_up(normed).chunk(2, dim=-1)
            hidden = hidden + layer.down(silu(gate).mul_(up))
        wanted = hidden if rows is None else hidden[rows]
        return self.head(rms_norm(wanted, (config.hidden_size,), self.norm, eps))


def _rotate(heads: Tensor, turn: Tensor) -> None:
    """Turn neighbouring pairs of [T, heads, D] in place by the unit complex numbers [T, 1, D/2]."""
    if heads.dtype in (torch.float32, torch.float64):
        torch.view_as_complex(heads.view(*heads.shape[:-1], -1, 2)).mul_(turn)
    else:  # half precision has no complex type: turn in float32, as published implementations do
        pairs = torch.view_as_complex(heads.float().view(*heads.shape[:-1], -1, 2))
        heads.copy_(torch.view_as_real(pairs * turn).flatten(-2))


def rotations(rope: Rope, width: int, positions: int) -> Tensor:
    """Unit complex numbers exp(i p f_j) [positions, width / 2], f_j = theta ** (-2 j / width).

    `llama3` scaling divides the slow frequencies by `factor` and blends in between.
    """
    # The published models compute the frequencies and angles in float32; so must we to agree with them.
    frequency = 1.0 / rope.theta ** (torch.arange(0, width, 2, dtype=torch.int64).float() / width)
    if rope.kind == "linear":
        frequency = frequency / rope.factor
    if rope.kind == "llama3":
        length = 2 * math.pi / frequency
        low, high = rope.low_freq_factor, rope.high_freq_factor
        blend = ((rope.original_positions / length - low) / (high - low)).clamp(0, 1)
        frequency = (1 - blend) * frequency / rope.factor + blend * frequency
    angles = torch.outer(torch.arange(positions).float(), frequency)
    return torch.polar(torch.ones_like(angles, dtype=torch.float64), angles.double())


def _complex(dtype: torch.dtype) -> torch.dtype:
    return torch.complex128 if dtype == torch.float64 else torch.complex64


class _Weights:
    """Checks published tensors against the shapes of the config and lays them out."""

    def __init__(
        self, config: ModelConfig, weights: Mapping[str, Tensor], device: torch.device, dtype: torch.dtype
    ) -> None:
        self._config, self._weights, self._device, self._dtype = config, weights, device, dtype
        for name, shape in shapes(config).items():
            if name not in weights:
                raise EngineError(f"the model folder lacks the tensor {name}")
            if tuple(weights[name].shape) != shape:
                raise EngineError(f"tensor {name} has shape {tuple(weights[name].shape)}, not {shape}")

    def __call__(self, name: str) -> Tensor:
        return self._laid(self._weights[name])

    def layer(self, index: int) -> Layer:
        config, at = self._config, f"model.layers.{index}."
        attention = at + "self_attn."
        return Layer(
            attention_norm=self(at + "input_layernorm.weight"),
            qkv=Matrix(
                self._qkv(attention, "weight"), self._qkv(attention, "bias") if config.qkv_bias else None
            ),
            query_norm=self._paired(attention + "q_norm.weight") if config.qk_norm else None,
            key_norm=self._paired(attention + "k_norm.weight") if config.qk_norm else None,
            output=Matrix(
                self(attention + "o_proj.weight"),
                self(attention + "o_proj.bias") if config.output_bias else None,
            ),
            mlp_norm=self(at + "post_attention_layernorm.weight"),
            gate_up=Matrix(
                self._joined(at + "mlp.gate_proj.weight", at + "mlp.up_proj.weight"),
                self._joined(at + "mlp.gate_proj.bias", at + "mlp.up_proj.bias") if config.mlp_bias else None,
            ),
            down=Matrix(
                self(at + "mlp.down_proj.weight"),
                self(at + "mlp.down_proj.bias") if config.mlp_bias else None,
            ),
        )

    def _qkv(self, attention: str, kind: str) -> Tensor:
        queries, keys, values = (self._weights[f"{attention}{name}_proj.{kind}"] for name in "qkv")
        width = self._config.head_dim
        return self._laid(torch.cat([_pair(queries, width), _pair(keys, width), values]))

    def _paired(self, name: str) -> Tensor:
        return self._laid(_pair(self._weights[name], self._config.head_dim))

    def _joined(self, first: str, second: str) -> Tensor:
        return self._laid(torch.cat([self._weights[first], self._weights[second]]))

    def _laid(self, tensor: Tensor) -> Tensor:
        return tensor.to(self._device, self._dtype).contiguous()


def _pair(rows: Tensor, width: int) -> Tensor:
    """Reorder each head's rows from (first half, second half) to neighbouring pairs."""
    heads = rows.reshape(-1, 2, width // 2, *rows.shape[1:])
    paired: Tensor = heads.transpose(1, 2).reshape(rows.shape)
    return paired


def _dtype(name: str) -> torch.dtype:
    known = {
        "float32": torch.float32,
        "float64": torch.float64,
        "bfloat16": torch.bfloat16,
        "float16": torch.float16,
    }
    if name not in known:
        raise EngineError(f"dtype must be one of {', '.join(known)}, not {name!r}")
    return known[name]
