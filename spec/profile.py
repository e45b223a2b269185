"""The profile: what a scheduler claims. A rule is judged only under the claims it needs.

Every option is declared once, below, with its kind, its allowed values and one sentence. An option
left at `None` is not claimed. Files are TOML, headers are JSON; both have this shape.
"""

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from batchspec.spec.errors import ProfileError

MODES: Final = ("static", "dynamic", "continuous")
ORDERS: Final = ("fcfs", "sjf", "priority", "fair")
VICTIMS: Final = (
    "latest-admitted",
    "latest-arrived",
    "self",
    "fewest-outputs",
    "least-urgent",
    "newest-denied",
)


def option(kind: str, says: str, *choices: str, default: Any = None, least: int = 0) -> Any:
    """Declare one option: its kind (`int`, `bool`, `word`, …), a sentence, and its allowed words.

    `default` is what holds where nothing is claimed and the field's texts name a default; it is
    read through the properties of `Profile`, so that a profile still says what it claims itself.
    """
    meta = {"kind": kind, "says": says, "choices": choices, "default": default, "least": least}
    return field(default=None, metadata=meta)


_ADDED: Final[dict[str, dict[str, None]]] = {"admission.order": {}, "preemption.victim": {}}
_OWN: Final = {
    "admission.order": "one of your own: --policy module:name",
    "preemption.victim": "one of your own: --victim module:name",
}


def add_word(path: str, word: str) -> None:
    """Let an option that names a policy take one more word, for a policy that was registered.

    `path` is `admission.order` or `preemption.victim`. Raises `ProfileError` for any other.
    """
    if path not in _ADDED:
        raise ProfileError(f"{path} takes no words of your own; {' and '.join(_ADDED)} do")
    _ADDED[path][word] = None


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes of the engine: sequences, tokens, blocks, nanoseconds."""

    max_seqs: int | None = option("int", "at most {} requests run at once", least=1)
    token_budget: int | None = option("int", "at most {} tokens are computed in a step", least=1)
    kv_blocks: int | None = option("int", "{} KV blocks can be handed out", least=1)
    block_size: int | None = option("int", "a KV block holds {} positions", least=1)
    max_model_len: int | None = option("int", "a sequence has at most {} tokens", least=1)
    host_blocks: int | None = option("int", "swapped requests have {} blocks on the host")
    max_waiting: int | None = option("int", "at most {} requests wait")
    seqs_cap: str | None = option(
        "word", "max_seqs counts {} requests", "resident", "per-step", default="resident"
    )
    prefill_budget: int | None = option("int", "at most {} prompt tokens in a step", least=1)
    resources: Mapping[str, int] | None = option("resources", "other resources and capacities: {}")
    queue_timeout_ns: int | None = option("int", "a request waits at most {} ns in the queue")


@dataclass(frozen=True, slots=True)
class Batching:
    """How a step's batch is put together."""

    mode: str | None = option("word", "batching is {}", *MODES)
    window_ns: int | None = option("int", "a dynamic batch waits at most {} ns for company")
    preferred_sizes: tuple[int, ...] | None = option("ints", "preferred batch sizes are {}")
    chunked_prefill: bool | None = option("bool", "a prompt may be computed in several steps")
    mixed: bool | None = option("bool", "prefill and decode may share a step")
    prefill_first: bool | None = option("bool", "prefill goes before decode")
    stall_free: bool | None = option("bool", "no running decode is left out of a step")
    lookahead: int | None = option("int", "{} speculative positions are reserved per decode")


@dataclass(frozen=True, slots=True)
class Admission:
    """Who may start, when, and what must be free for it."""

    order: str | None = option("word", "requests are admitted by {}", *ORDERS)
    urgent: str | None = option("word", "{} priority numbers are the urgent ones", "low", "high")
    misfit: str | None = option("word", "at the first request that does not fit: {}", "stop", "skip")
    skip_ahead: int | None = option("int", "at most {} later requests pass one that does not fit")
    test: str | None = option("need", "the admission test asks for the blocks of {}")
    reserve: str | None = option("need", "an admitted request holds the blocks of {}")
    watermark_blocks: int | None = option(
        "int", "{} blocks are kept free at admission while another request runs", default=0
    )
    work_conserving: bool | None = option("bool", "a request that fits is admitted without delay")


@dataclass(frozen=True, slots=True)
class Preemption:
    """Who is interrupted, how, and how it comes back."""

    mode: str | None = option("word", "preemption is by {}", "none", "recompute", "swap")
    victim: str | None = option("word", "the victim is {}", *VICTIMS)
    resume: str | None = option("word", "a preempted request returns at {}", "front", "back", "arrival")
    admit_in_same_step: bool | None = option("bool", "a step that preempts may admit")
    keeps_blocks: bool | None = option("bool", "a preempted request keeps its blocks", default=False)
    for_waiting: bool | None = option("bool", "a more urgent waiting request may evict")
    headroom_blocks: int | None = option("int", "{} blocks are freed beyond the need", default=0)


@dataclass(frozen=True, slots=True)
class Reuse:
    """When slots and blocks of a request that ended may be taken again, and what is shared."""

    slot_lag: int | None = option("int", "a seat comes back {} steps late", default=0)
    block_lag: int | str | None = option("lag", "blocks come back {} steps late", default=0)
    overlap_member: int | None = option(
        "int", "a finished request may be a member of {} more passes", default=0
    )
    depth: int | None = option("int", "{} passes are in flight", default=1, least=1)
    ordered_passes: bool | None = option("bool", "the device runs passes in the order of dispatch")
    prefix: bool | None = option("bool", "blocks are shared by prefix")
    same_pass: bool | None = option("bool", "a block computed in this pass may already be shared")


@dataclass(frozen=True, slots=True)
class Fairness:
    """What is owed between tenants and over time."""

    w_p: float | None = option("number", "an input token counts {}", default=1)
    w_q: float | None = option("number", "an output token counts {}", default=2)
    weights: Mapping[str, float] | None = option("weights", "tenants weigh {}")
    lift: bool | None = option("bool", "a tenant that wakes is lifted (VTC)", default=True)
    starvation_steps: int | None = option("int", "nobody waits over {} steps for its first service")
    rate_limits: Mapping[str, Mapping[str, int]] | None = option("rates", "tenants are limited to {}")
    delivery: str | None = option("word", "responses leave in the order of {}", "arrival")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a bounded rule waits before it speaks."""

    K: int | None = option("int", "bounded rules wait {} steps", default=4, least=1)
    rules: Mapping[str, int] | None = option("bounds", "but these rules: {}")
    wall_ns: int | None = option("int", "no step at all for over {} ns is a stall")
    tolerance_ns: int | None = option("int", "times are compared to within {} ns", default=50_000_000)


GROUPS: Final[dict[str, type[Any]]] = {
    "limits": Limits,
    "batching": Batching,
    "admission": Admission,
    "preemption": Preemption,
    "reuse": Reuse,
    "fairness": Fairness,
    "patience": Patience,
}
"""The option groups, in the order in which they are written."""


@dataclass(frozen=True, slots=True)
class Profile:
    """All claims of one scheduler. `Profile()` claims nothing."""

    name: str | None = None
    summary: str | None = None
    sources: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    batching: Batching = field(default_factory=Batching)
    admission: Admission = field(default_factory=Admission)
    preemption: Preemption = field(default_factory=Preemption)
    reuse: Reuse = field(default_factory=Reuse)
    fairness: Fairness = field(default_factory=Fairness)
    patience: Patience = field(default_factory=Patience)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], where: str = "config") -> "Profile":
        """Read the TOML or JSON shape. Raises `ProfileError` that names the option at fault.

        `where` is what the error calls the source, for example `profile vllm-v1` or `header`.
        """
        parts: dict[str, Any] = {}
        for group, table in data.items():
            if group in ("name", "summary"):
                parts[group] = _text(table, f"{where}: {group}")
            elif group == "sources":
                parts[group] = _texts(table, f"{where}: {group}")
            elif group not in GROUPS:
                raise ProfileError(f"{where}: unknown option {group!r}{_nearest(group, GROUPS)}")
            else:
                parts[group] = _group(group, table, where)
        return cls(**parts)

    def to_dict(self) -> dict[str, Any]:
        """The claims as plain data, only what is claimed: `from_dict` of it gives the same profile."""
        out: dict[str, Any] = {}
        for group in GROUPS:
            table = {
                item.name: _plain(value)
                for item in fields(GROUPS[group])
                if (value := getattr(getattr(self, group), item.name)) is not None
            }
            if table:
                out[group] = table
        return out

    def merged(self, later: "Profile") -> "Profile":
        """This profile with every claim of `later` laid over it; the later claim wins."""
        parts: dict[str, Any] = {}
        for group in GROUPS:
            mine, theirs = getattr(self, group), getattr(later, group)
            claims = {
                item.name: value for item in fields(mine) if (value := getattr(theirs, item.name)) is not None
            }
            parts[group] = replace(mine, **claims)
        named = later if later.name else self
        return Profile(name=named.name, summary=named.summary, sources=named.sources, **parts)

    def claim(self, path: str) -> Any:
        """The value claimed at `group.option`, or None. Raises `ProfileError` for an unknown path."""
        group, _, name = path.partition(".")
        if group not in GROUPS or name not in GROUPS[group].__dataclass_fields__:
            raise ProfileError(f"unknown option {path!r}")
        return getattr(getattr(self, group), name)

    def value(self, path: str) -> Any:
        """The value claimed at `group.option`, else the default that the field's texts state."""
        claimed = self.claim(path)
        if claimed is not None:
            return claimed
        group, _, name = path.partition(".")
        return GROUPS[group].__dataclass_fields__[name].metadata["default"]

    def patience_of(self, rule: str) -> int:
        """K of one bounded rule, in steps: its own entry in `patience.rules`, else `patience.K`."""
        own = (self.patience.rules or {}).get(rule)
        return int(own if own is not None else self.value("patience.K"))


def option_says(group: str, name: str) -> str:
    """The sentence of one option, with `{}` where its value goes."""
    return str(GROUPS[group].__dataclass_fields__[name].metadata["says"])


def _group(group: str, table: Any, where: str) -> Any:
    kind = GROUPS[group]
    if not isinstance(table, Mapping):
        raise ProfileError(f"{where}: {group} must be a table of options, not {_shown(table)}")
    values: dict[str, Any] = {}
    for name, value in table.items():
        if name not in kind.__dataclass_fields__:
            hint = _nearest(name, kind.__dataclass_fields__)
            raise ProfileError(f"{where}: unknown option {group}.{name}{hint}")
        meta = kind.__dataclass_fields__[name].metadata
        if isinstance(value, str) and value in _ADDED.get(f"{group}.{name}", ()):
            values[name] = value
            continue
        values[name] = _value(value, meta, f"{where}: {group}.{name}")
    return kind(**values)


def _value(value: Any, meta: Mapping[str, Any], where: str) -> Any:
    kind = meta["kind"]
    if kind == "int":
        return _int(value, where, meta["least"])
    if kind == "bool":
        if not isinstance(value, bool):
            raise ProfileError(f"{where} must be true or false, not {_shown(value)}")
        return value
    if kind == "word":
        if value not in meta["choices"]:
            words = ", ".join(meta["choices"])
            hint = next((f" ({says})" for path, says in _OWN.items() if where.endswith(path)), "")
            raise ProfileError(f"{where} must be one of {words}, not {_shown(value)}{hint}")
        return value
    if kind == "number":
        return _number(value, where)
    if kind == "ints":
        if not isinstance(value, list | tuple) or not value:
            raise ProfileError(f"{where} must be a list of sizes, not {_shown(value)}")
        return tuple(sorted(_int(item, where, 1) for item in value))
    if kind == "need":
        parse_need(value, where)
        return value
    if kind == "lag":
        return value if value == "release" else _int(value, where, 0)
    table = _table(value, where)
    if kind == "weights":
        return {key: _positive(item, f"{where}.{key}") for key, item in table.items()}
    if kind == "rates":
        return {key: _rate(item, f"{where}.{key}") for key, item in table.items()}
    return {key: _int(item, f"{where}.{key}", 0) for key, item in table.items()}


def parse_need(value: Any, where: str = "need") -> tuple[str, int]:
    """Split a need such as `known+2` into its word and its extra tokens: `("known", 2)`."""
    if isinstance(value, str):
        word, plus, extra = value.partition("+")
        if word == "known" and plus and extra.isascii() and extra.isdigit() and len(extra) < 10:
            return word, int(extra)
        if not plus and word in ("step", "known", "ratio", "peak", "full"):
            return word, 0
    words = "step, known, known+k, ratio, peak, full"
    raise ProfileError(f"{where} must be one of {words}, not {_shown(value)}")


def _rate(value: Any, where: str) -> dict[str, int]:
    table = _table(value, where)
    if set(table) != {"requests", "per_ns"}:
        raise ProfileError(f"{where} must have exactly requests and per_ns")
    return {key: _int(item, f"{where}.{key}", 1) for key, item in table.items()}


def _table(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ProfileError(f"{where} must be a table, not {_shown(value)}")
    return value


def _int(value: Any, where: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ProfileError(f"{where} must be a whole number, not {_shown(value)}")
    if not least <= value < 2**63:
        raise ProfileError(f"{where} must be at least {least}, not {_shown(value)}")
    return value


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e18:
        raise ProfileError(f"{where} must be a number of at least 0, not {_shown(value)}")
    return value


def _positive(value: Any, where: str) -> float:
    number = _number(value, where)
    if number <= 0:
        raise ProfileError(f"{where} must be above 0, not {_shown(value)}")
    return number


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise ProfileError(f"{where} must be a text, not {_shown(value)}")
    return value


def _texts(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise ProfileError(f"{where} must be a list of texts, not {_shown(value)}")
    return tuple(_text(item, where) for item in value)


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 40 else text[:37] + "..."


def _nearest(name: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(str(name), list(known), n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else f" (known: {', '.join(known)})"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return list(value) if isinstance(value, tuple) else value
