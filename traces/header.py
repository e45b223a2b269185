"""The header: what a trace or a request table says about itself.

It stands in the Parquet key-value metadata under the key `batchspec`, as one JSON object. A header
is input from strangers: its size, its nesting and each known key are checked, unknown keys are kept.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

from batchspec.spec.errors import ProfileError, TraceError
from batchspec.spec.profile import Profile
from batchspec.traces.text import shown

KEY: Final = b"batchspec"
SCHEMA_VERSION: Final = 1
MAX_BYTES: Final = 4 * 1024 * 1024
"""A longer header is refused: no honest one comes near."""

MAX_DEPTH: Final = 64
"""Objects and lists in each other: how deep a parser can go depends on the Python, this does not."""

LIVE_ROWS: Final = "live_rows"
"""Key of a part's header: how many `live` rows it begins with, which a reader of the part before knows."""

CLOCKS: Final = ("wall", "monotonic", "virtual")
OUTPUTS: Final = ("derived", "recorded")
BEGINS: Final = ("empty", "running")


@dataclass(frozen=True, slots=True)
class Header:
    """What a producer states once for a whole trace.

    `config` is the JSON shape of a profile, only what is claimed. `complete` is false while the
    producer may still append, so a trace that was cut stays false. `begins` is `running` where
    `live` rows come first. `hash_block` is the number of tokens behind one prefix hash.
    `started_at` is the producer's own text or number. `extra` holds unknown keys, untouched.
    """

    schema_version: int = SCHEMA_VERSION
    producer_name: str | None = None
    producer_version: str | None = None
    clock: str | None = None
    profile: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    complete: bool = False
    outputs: Literal["derived", "recorded"] | None = None
    begins: Literal["empty", "running"] = "empty"
    started_at: str | int | None = None
    hash_block: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def live_rows(self) -> int:
        """How many rows of a part repeat what the part before it tells: its first ones."""
        found = self.extra.get(LIVE_ROWS)
        return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else 0

    @classmethod
    def from_json(cls, text: str | bytes) -> "Header":
        """Read a header. Raises `TraceError`, one line that names the key at fault."""
        return _header(_parsed(text))

    def to_json(self) -> str:
        """The header as one line of JSON, known keys first; `from_json` of it gives the same header."""
        out: dict[str, Any] = {"schema_version": self.schema_version}
        producer = {"name": self.producer_name, "version": self.producer_version}
        if said := {key: value for key, value in producer.items() if value is not None}:
            out["producer"] = said
        for key in ("clock", "profile", "outputs", "started_at", "hash_block"):
            if (value := getattr(self, key)) is not None:
                out[key] = value
        if self.config:
            out["config"] = dict(self.config)
        out["complete"] = self.complete
        out["begins"] = self.begins
        out.update(self.extra)
        return json.dumps(out, separators=(",", ":"))


def _parsed(text: str | bytes) -> dict[str, Any]:
    if len(text) > MAX_BYTES:
        raise TraceError(f"header: longer than {MAX_BYTES} bytes; keep only what `batchspec` defines")
    try:
        data = json.loads(text, parse_constant=_refused, parse_float=_finite)
        if _deeper(data, MAX_DEPTH):
            raise RecursionError
        # A lone surrogate can be neither printed nor written again.
        json.dumps(data, ensure_ascii=False).encode()
    except RecursionError:
        raise TraceError("header: nested too deeply to be a header") from None
    except UnicodeError:
        raise TraceError("header: not valid UTF-8 text") from None
    except ValueError as error:
        raise TraceError(f"header: not valid JSON ({error})") from None
    if not isinstance(data, dict):
        raise TraceError(f"header: must be a JSON object, not {shown(data)}")
    return data


def _deeper(data: Any, depth: int) -> bool:
    level = [data]
    for _ in range(depth):
        containers = [item for item in level if isinstance(item, dict | list)]
        if not containers:
            return False
        level = [
            inner for item in containers for inner in (item.values() if isinstance(item, dict) else item)
        ]
    return any(isinstance(item, dict | list) for item in level)


def _refused(word: str) -> float:
    raise ValueError(f"{word} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is too large")
    return number


def _header(data: dict[str, Any]) -> Header:
    version = data.pop("schema_version", SCHEMA_VERSION)
    if isinstance(version, bool) or version != SCHEMA_VERSION:
        raise TraceError(
            f"header: schema_version {shown(version)} is unknown; this release reads {SCHEMA_VERSION}"
        )
    producer = data.pop("producer", None)
    if not isinstance(producer, dict | None):
        raise TraceError(f"header: producer must be an object with name and version, not {shown(producer)}")
    producer = producer or {}
    return Header(
        schema_version=SCHEMA_VERSION,
        producer_name=_text(producer.get("name"), "producer.name"),
        producer_version=_text(producer.get("version"), "producer.version"),
        clock=_word(data.pop("clock", None), "clock", CLOCKS),
        profile=_text(data.pop("profile", None), "profile"),
        config=_config(data.pop("config", None)),
        complete=_flag(data.pop("complete", False), "complete"),
        outputs=cast("Any", _word(data.pop("outputs", None), "outputs", OUTPUTS)),
        begins=cast("Any", _word(data.pop("begins", None), "begins", BEGINS) or "empty"),
        started_at=_moment(data.pop("started_at", None)),
        hash_block=_size(data.pop("hash_block", None), "hash_block"),
        extra=data,
    )


def _text(value: Any, key: str) -> str | None:
    if not isinstance(value, str | None):
        raise TraceError(f"header: {key} must be a text, not {shown(value)}")
    return value


def _word(value: Any, key: str, words: tuple[str, ...]) -> str | None:
    if value is not None and value not in words:
        raise TraceError(f"header: {key} must be one of {', '.join(words)}, not {shown(value)}")
    return cast("str | None", value)


def _flag(value: Any, key: str) -> bool:
    if not isinstance(value, bool):
        raise TraceError(f"header: {key} must be true or false, not {shown(value)}")
    return value


def _moment(value: Any) -> str | int | None:
    if isinstance(value, bool) or not isinstance(value, str | int | None):
        raise TraceError(f"header: started_at must be a text or a whole number, not {shown(value)}")
    return value


def _size(value: Any, key: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**63:
        raise TraceError(f"header: {key} must be a whole number of at least 1, not {shown(value)}")
    return value


def _config(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict | None):
        raise TraceError(f"header: config must be an object of option groups, not {shown(value)}")
    config = value or {}
    try:
        Profile.from_dict(config, where="header config")
    except ProfileError as error:
        raise TraceError(str(error)) from None
    return config
