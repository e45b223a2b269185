"""The shape of a model: the fields of a `config.json` that the Llama family needs.

Sizes are in units (heads, layers, features); every tensor shape of the model follows from them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from batchspec.engine.errors import EngineError

FAMILIES: Final = ("llama", "mistral", "qwen2", "qwen3")
"""Values of `model_type` that share this forward pass: RMSNorm, rotary, grouped queries, SwiGLU."""


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary embedding. `factor` and the rest are those of the `linear` and `llama3` scalings."""

    theta: float = 10_000.0
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_positions: int = 8192


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One model of the Llama family. The defaults are the tiny model of the demo and the tests."""

    vocab_size: int = 1000
    hidden_size: int = 64
    intermediate_size: int = 176
    num_layers: int = 2
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 16
    max_positions: int = 4096
    rms_norm_eps: float = 1e-5
    rope: Rope = Rope()
    tie_embeddings: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    family: str = "llama"
    stop_tokens: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Refuse shapes that no tensor can have. Raises `EngineError`."""
        if self.num_heads % self.num_kv_heads:
            raise EngineError(
                f"num_attention_heads {self.num_heads} must be a multiple of"
                f" num_key_value_heads {self.num_kv_heads}"
            )
        if self.head_dim % 2:
            raise EngineError(f"head_dim must be even, not {self.head_dim}: rotary turns pairs")

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of float32 KV that one position takes over all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * 4

    @property
    def matmul_parameters(self) -> int:
        """Parameters that a token is multiplied with: every weight but the embedding table's gather."""
        queries = self.num_heads * self.head_dim
        keys = self.num_kv_heads * self.head_dim
        attention = self.hidden_size * (queries + 2 * keys) + queries * self.hidden_size
        mlp = 3 * self.hidden_size * self.intermediate_size
        return self.num_layers * (attention + mlp) + self.vocab_size * self.hidden_size

    @classmethod
    def from_folder(cls, folder: Path) -> "ModelConfig":
        """Read `config.json` of a model folder. Raises `EngineError` that names the field at fault."""
        path = folder / "config.json"
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise EngineError(
                f"{path} is missing: a model folder holds config.json and *.safetensors"
            ) from None
        except (OSError, ValueError) as error:
            raise EngineError(f"{path} cannot be read as JSON: {error}") from None
        if not isinstance(data, dict):
            raise EngineError(f"{path} must hold a JSON object")
        return cls.from_dict(data)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ModelConfig":
        """Read the keys of a published `config.json`, old and new spelling of the rotary options."""
        family = data.get("model_type")
        if family not in FAMILIES:
            raise EngineError(f"model_type must be one of {', '.join(FAMILIES)}, not {family!r}")
        if data.get("hidden_act", "silu") != "silu":
            raise EngineError(f"hidden_act must be silu, not {data['hidden_act']!r}")
        if data.get("sliding_window") and data.get("use_sliding_window", family == "mistral"):
            raise EngineError("sliding_window is not supported: set use_sliding_window to false")
        heads = _size(data, "num_attention_heads")
        hidden = _size(data, "hidden_size")
        bias = bool(data.get("attention_bias", False))
        return cls(
            vocab_size=_size(data, "vocab_size"),
            hidden_size=hidden,
            intermediate_size=_size(data, "intermediate_size"),
            num_layers=_size(data, "num_hidden_layers"),
            num_heads=heads,
            num_kv_heads=_size(data, "num_key_value_heads", heads),
            head_dim=_size(data, "head_dim", hidden // heads),
            max_positions=_size(data, "max_position_embeddings", 4096),
            rms_norm_eps=float(data.get("rms_norm_eps", 1e-6)),
            rope=_rope(data),
            tie_embeddings=bool(data.get("tie_word_embeddings", False)),
            qkv_bias=bias or family == "qwen2",
            output_bias=bias,
            mlp_bias=bool(data.get("mlp_bias", False)),
            qk_norm=family == "qwen3",
            family=family,
            stop_tokens=_tokens(data.get("eos_token_id")),
        )


def _size(data: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = data.get(key)
    if value is None:
        value = default
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**31:
        raise EngineError(f"config.json: {key} must be a whole number above 0, not {value!r}")
    return value


def _rope(data: Mapping[str, Any]) -> Rope:
    table = data.get("rope_parameters") or data.get("rope_scaling") or {}
    if not isinstance(table, Mapping):
        raise EngineError(f"config.json: the rotary options must be a table, not {table!r}")
    theta = float(table.get("rope_theta", data.get("rope_theta", 10_000.0)))
    kind = table.get("rope_type", table.get("type", "default"))
    if kind not in ("default", "linear", "llama3"):
        raise EngineError(f"rotary scaling {kind!r} is not supported: use default, linear or llama3")
    return Rope(
        theta=theta,
        kind=kind,
        factor=float(table.get("factor", 1.0)),
        low_freq_factor=float(table.get("low_freq_factor", 1.0)),
        high_freq_factor=float(table.get("high_freq_factor", 4.0)),
        original_positions=int(table.get("original_max_position_embeddings", 8192)),
    )


def _tokens(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list) else (int(value),)
