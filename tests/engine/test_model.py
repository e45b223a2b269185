"""The packed pass against a plain one: one sequence, dense attention, published layout of weights."""

import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from batchspec.engine.config import ModelConfig, Rope
from batchspec.engine.errors import EngineError
from batchspec.engine.model import Model
from batchspec.engine.runner import Runner
from batchspec.engine.sequence import Plan, Request, Sequence
from batchspec.engine.weights import random_weights, read_folder, shapes

CONFIGS = {
    "tiny": ModelConfig(vocab_size=50, hidden_size=32, intermediate_size=48, head_dim=8),
    "no-groups": ModelConfig(vocab_size=50, num_heads=2, num_kv_heads=2, head_dim=32, tie_embeddings=True),
    "biases": ModelConfig(vocab_size=50, qkv_bias=True, output_bias=True, mlp_bias=True),
    "norms": ModelConfig(vocab_size=50, qk_norm=True, head_dim=32),
    "llama3": ModelConfig(
        vocab_size=50, rope=Rope(kind="llama3", factor=8.0, original_positions=64, theta=1000.0)
    ),
}


def plain_logits(config: ModelConfig, weights: dict[str, Tensor], tokens: list[int]) -> Tensor:
    """Logits [T, vocab] in float64, written as the formulas stand."""
    w = {name: tensor.double() for name, tensor in weights.items()}
    heads, kv_heads, width = config.num_heads, config.num_kv_heads, config.head_dim

    def norm(x: Tensor, scale: Tensor) -> Tensor:
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + config.rms_norm_eps) * scale

    def project(x: Tensor, name: str) -> Tensor:
        y = x @ w[name + ".weight"].T
        return y + w[name + ".bias"] if name + ".bias" in w else y

    def turned(x: Tensor) -> Tensor:
        frequency = 1.0 / config.rope.theta ** (torch.arange(0, width, 2).float() / width)
        if config.rope.kind == "llama3":
            rope, kept = config.rope, []
            for f in frequency.tolist():
                length = 2 * math.pi / f
                t = (rope.original_positions / length - rope.low_freq_factor) / (
                    rope.high_freq_factor - rope.low_freq_factor
                )
                t = min(1.0, max(0.0, t))
                kept.append((1 - t) * f / rope.factor + t * f)
            frequency = torch.tensor(kept)
        angle = (torch.arange(len(tokens)).float()[:, None] * frequency).double()
        angle = torch.cat([angle, angle], -1)[:, None]
        half = torch.cat([-x[..., width // 2 :], x[..., : width // 2]], -1)
        return x * angle.cos() + half * angle.sin()

    x = w["model.embed_tokens.weight"][tokens]
    seen = torch.ones(len(tokens), len(tokens)).tril().bool()
    for layer in range(config.num_layers):
        at = f"model.layers.{layer}."
        h = norm(x, w[at + "input_layernorm.weight"])
        q = project(h, at + "self_attn.q_proj").view(-1, heads, width)
        k = project(h, at + "self_attn.k_proj").view(-1, kv_heads, width)
        v = project(h, at + "self_attn.v_proj").view(-1, kv_heads, width)
        if config.qk_norm:
            q = norm(q, w[at + "self_attn.q_norm.weight"])
            k = norm(k, w[at + "self_attn.k_norm.weight"])
        q, k = turned(q), turned(k)
        k, v = (part.repeat_interleave(heads // kv_heads, 1) for part in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(width)
        mixed = torch.einsum("hqk,khd->qhd", scores.masked_fill(~seen, -torch.inf).softmax(-1), v)
        x = x + project(mixed.flatten(1), at + "self_attn.o_proj")
        h = norm(x, w[at + "post_attention_layernorm.weight"])
        gate = torch.nn.functional.silu(project(h, at + "mlp.gate_proj"))
        x = x + project(gate * project(h, at + "mlp.up_proj"), at + "mlp.down_proj")
    head = w["model.embed_tokens.weight"] if config.tie_embeddings else w["lm_head.weight"]
    return norm(x, w["model.norm.weight"]) @ head.T


def packed_logits(runner: Runner, plan: Plan) -> dict[Sequence, Tensor]:
    """All logits of each member of a mixed batch."""
    batch = runner._packer.pack(plan)
    with torch.inference_mode():
        logits = runner.model.forward(batch.tokens, batch.positions, None, runner._attention.over(batch))
    rows: dict[Sequence, list[int]] = {}
    slots = {int(place) // runner.cache.block_size: row for row, place in enumerate(batch.places.tolist())}
    for sequence, start, count in zip(plan.sequences, plan.starts, plan.counts, strict=True):
        size = runner.cache.block_size
        places = [sequence.blocks[at // size] * size + at % size for at in range(start, start + count)]
        rows[sequence] = [batch.places.tolist().index(place) for place in places]
    assert slots
    return {sequence: logits[found] for sequence, found in rows.items()}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_mixed_batch_gives_the_logits_of_each_sequence_alone(name: str) -> None:
    config = CONFIGS[name]
    weights = random_weights(config, seed=1)
    runner = Runner(Model(config, weights, dtype="float64"), slots=4, num_blocks=64, block_size=4)
    generator = torch.Generator().manual_seed(2)
    lengths = (37, 21, 18, 5)
    sequences, wanted, free = [], [], list(range(64))[::-1]
    for slot, length in enumerate(lengths):
        tokens = torch.randint(0, 50, (length,), generator=generator).tolist()
        sequence = Sequence(Request(slot, tuple(tokens), 1), arrived=slot)
        sequence.slot = slot
        sequence.blocks = [free.pop() for _ in range(-(-length // 4))]
        sequences.append(sequence)
        wanted.append(plain_logits(config, weights, tokens))
    # Chunks of every kind side by side: whole prompts, later chunks, single tokens, in uneven order.
    steps = [
        [(0, 0, 20), (1, 0, 7)],
        [(1, 7, 1), (0, 20, 3), (2, 0, 17)],
        [(2, 17, 1), (1, 8, 12), (3, 0, 4), (0, 23, 1)],
        [(3, 4, 1), (0, 24, 12), (1, 20, 1)],
        [(0, 36, 1)],
    ]
    for step in steps:
        plan = Plan(1)
        for index, start, count in step:
            plan.add(sequences[index], start, count)
            plan.grants.append(sequences[index])
        found = packed_logits(runner, plan)
        for index, start, count in step:
            torch.testing.assert_close(
                found[sequences[index]], wanted[index][start : start + count], atol=1e-9, rtol=1e-9
            )


def test_float32_logits_are_those_of_float64_to_within_rounding() -> None:
    config = ModelConfig(vocab_size=2000, hidden_size=128, head_dim=32)  # large enough to be packed
    weights, tokens = random_weights(config, seed=1), [3, 1, 4, 1, 5, 9, 2, 6]
    runner = Runner(Model(config, weights), slots=1, num_blocks=4, block_size=4)
    sequence = Sequence(Request("a", tuple(tokens), 1), arrived=0)
    sequence.slot, sequence.blocks = 0, [2, 0]
    plan = Plan(1)
    plan.add(sequence, 0, 8)
    plan.grants.append(sequence)
    found = packed_logits(runner, plan)[sequence].double()
    torch.testing.assert_close(found, plain_logits(config, weights, tokens), atol=1e-4, rtol=1e-4)


def write_folder(folder: Path, config: ModelConfig, weights: dict[str, Tensor]) -> None:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, tensor in weights.items():
        raw = tensor.contiguous().view(torch.uint8).numpy().tobytes()
        header[name] = {
            "dtype": {torch.float32: "F32", torch.bfloat16: "BF16"}[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    (folder / "config.json").write_text(
        json.dumps(
            {
                "model_type": config.family,
                "vocab_size": config.vocab_size,
                "hidden_size": config.hidden_size,
                "intermediate_size": config.intermediate_size,
                "num_hidden_layers": config.num_layers,
                "num_attention_heads": config.num_heads,
                "num_key_value_heads": config.num_kv_heads,
                "head_dim": config.head_dim,
                "max_position_embeddings": config.max_positions,
                "rms_norm_eps": config.rms_norm_eps,
                "eos_token_id": [7],
            }
        )
    )


def test_a_folder_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    config = CONFIGS["tiny"]
    weights = random_weights(config, seed=3)
    write_folder(tmp_path, config, weights)
    found = read_folder(tmp_path)
    assert set(found) == set(shapes(config))
    assert all(torch.equal(found[name], weights[name]) for name in weights)
    model = Model.from_folder(tmp_path)
    assert model.config.stop_tokens == (7,)
    assert model.config.head_dim == config.head_dim


def test_half_precision_weights_are_widened(tmp_path: Path) -> None:
    config = CONFIGS["tiny"]
    weights = {name: tensor.bfloat16() for name, tensor in random_weights(config, seed=3).items()}
    write_folder(tmp_path, config, weights)
    assert Model.from_folder(tmp_path).embedding.dtype == torch.float32


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda data: data[:4], "not a safetensors file"),
        (lambda data: (2**40).to_bytes(8, "little") + data[8:], "not a safetensors file"),
        (lambda data: data[:8] + b"x" + data[9:], "not JSON"),
        (lambda data: data[:-1000], "does not fit its byte range"),
        (lambda data: data.replace(b'"F32"', b'"I64"', 1), "unsupported dtype"),
        (lambda data: data.replace(b"model.norm.weight", b"model.norm.wEight"), "lacks the tensor"),
    ],
)
def test_a_damaged_folder_is_one_clear_line(tmp_path: Path, spoil: object, says: str) -> None:
    config = CONFIGS["tiny"]
    write_folder(tmp_path, config, random_weights(config, seed=3))
    path = tmp_path / "model.safetensors"
    path.write_bytes(spoil(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(EngineError, match=says) as error:
        Model.from_folder(tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model_type": "gpt2"}, "model_type must be one of"),
        ({"hidden_act": "gelu"}, "hidden_act must be silu"),
        ({"vocab_size": 0}, "vocab_size must be a whole number"),
        ({"num_key_value_heads": 3}, "must be a multiple"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "rotary scaling 'yarn'"),
        ({"model_type": "mistral", "sliding_window": 4096}, "sliding_window is not supported"),
    ],
)
def test_a_config_that_is_not_served_names_the_field(change: dict[str, object], says: str) -> None:
    base = {
        "model_type": "llama",
        "vocab_size": 10,
        "hidden_size": 8,
        "intermediate_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    with pytest.raises(EngineError, match=says):
        ModelConfig.from_dict(base | change)


def test_old_and_new_spellings_of_the_rotary_options_agree() -> None:
    base = {
        "model_type": "llama",
        "vocab_size": 10,
        "hidden_size": 8,
        "intermediate_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    scaling = {"rope_type": "linear", "factor": 2.0}
    old = ModelConfig.from_dict(base | {"rope_theta": 500.0, "rope_scaling": scaling})
    new = ModelConfig.from_dict(base | {"rope_parameters": {"rope_theta": 500.0, **scaling}})
    assert old.rope == new.rope == Rope(theta=500.0, kind="linear", factor=2.0)
