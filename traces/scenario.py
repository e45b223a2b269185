"""The scenario: a trace as text, short enough to write by hand and to paste into an issue.

    # Two requests, memory for one and a half: B is evicted and comes back when A has ended.
    cfg kv_blocks=3 block_size=4 max_seqs=2 token_budget=8 batching.mode=continuous order=fcfs
    1 arrive A prompt=6 max=3
    1 arrive B prompt=5 max=3
    1 admit A slot=0 blocks=2
    1 schedule A start=0 tokens=6 blocks=2
    1 admit B slot=1 blocks=1
    1 schedule B start=0 tokens=2 blocks=1
    1 step free=0
    2 schedule A start=6 tokens=1 blocks=2
    2 preempt B recompute cause=A
    2 step free=1
    3 schedule A start=7 tokens=1 blocks=2
    3 finish A length out=3
    3 step free=3
    4 resume B slot=0 blocks=2
    4 schedule B start=0 tokens=5 blocks=2
    4 step free=1
    5 schedule B start=+ tokens=1 blocks=2
    5 step free=1
    6 schedule B start=+ tokens=1 blocks=2
    6 finish B length out=3
    6 step free=3
    end

One line is one event, or one of four words. `#` at the start of a token begins a comment. A line `----`
ends the scenario: what follows is what somebody expects of it, and is not read.

    line     = "profile" NAME                      the header's profile
             | "header" { KEY "=" VALUE }          begins, outputs, clock, started_at, hash_block,
                                                   producer, producer_version, complete, ids, extra
             | "cfg" { OPTION "=" VALUE }          the header's config; see `batchspec profiles`
             | STEP KIND [REQUEST] [WORD] { COLUMN "=" VALUE }
             | "end"                               nothing follows: the trace is complete
    STEP     = number | number ".." number         the row once in each of these steps
    REQUEST  = the id; not on step, dispatch, complete
    WORD     = the column `reason`; on take and give the column `resource`

- A trace is complete only if `end` is its last line (or the header says `complete=true`). A fragment,
  which most examples are, thus owes nothing at its end.
- `profile`, `header` and `cfg` stand before the first event. The group of an option may be left out
  where only one group has an option of that name. A table is written `weights=a:1,b:2`,
  `rate_limits=a:5/60s`, or as JSON without spaces.
- Consecutive lines with the same STEP range are one block, repeated as a whole for each step.
- Columns have their names from trace.md, or a short one: prompt, max, out, free, shared, pinned, ids,
  hashes, t. A list is `1,2,3`. A time has a unit (`t=5ms`; none: nanoseconds), and `t=+5ms` is that
  much later than the last time given. What is not written is null.
- `start=+` continues where the request stands: behind its last `schedule` (less rejected drafts),
  at `cached` after admit and resume, at 0 after a preempt with `recompute`.
- Ids are strings, with `header ids=int` integers. A text with spaces, quotes or `=` is quoted as in JSON.

`format_scenario` writes this form, and `parse_scenario` of it gives the same events and header.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from batchspec.spec.errors import BatchspecError, TraceError
from batchspec.spec.events import COLUMNS, KINDS, REASONS, WITHOUT_REQUEST, Event, RequestId
from batchspec.spec.profile import Profile
from batchspec.traces import scenario_values as values
from batchspec.traces.header import Header
from batchspec.traces.normal import EFFECT_BY_REASON
from batchspec.traces.schema import SIGNED, family
from batchspec.traces.text import nearest, one_line, shown
from batchspec.traces.trace import Trace

MAX_BYTES: Final = 16 * 1024 * 1024
MAX_ROWS: Final = 1_000_000
"""A scenario is written by hand: more text or more repeated rows are refused."""

EXPECTATION: Final = "----"
"""The line that ends a scenario; below it stands what somebody expects of it."""

ALIASES: Final = {
    "prompt": "prompt_tokens",
    "max": "max_tokens",
    "out": "output_tokens",
    "free": "free_blocks",
    "shared": "shared_blocks",
    "pinned": "pinned_blocks",
    "ids": "block_ids",
    "hashes": "block_hashes",
    "t": "time_ns",
}
"""Short names of columns."""

_SHORT: Final = {column: alias for alias, column in ALIASES.items()}
_NOT_PAIRS: Final = ("step", "event")
_HEADER_KEYS: Final = (
    "begins",
    "outputs",
    "clock",
    "started_at",
    "hash_block",
    "producer",
    "producer_version",
    "complete",
    "ids",
    "extra",
)
_CONTINUE: Final = "+"


@dataclass(slots=True)
class _Line:
    """One event line: its step range, and its columns by field of `Event`."""

    first: int
    last: int
    fields: dict[str, Any]
    later: int | None = None


@dataclass(slots=True)
class _Draft:
    """What has been read so far."""

    header: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    integer_ids: bool = False
    lines: list[_Line] = field(default_factory=list)
    rows: int = 0
    ended: bool = False


def parse_scenario(text: str, name: str = "scenario") -> Trace:
    """The trace that the text describes. Raises `TraceError`, one line `name:LINE: …`."""
    name = one_line(name)
    if len(text) > MAX_BYTES:
        raise TraceError(f"{name}: longer than {MAX_BYTES} bytes; record a trace of this size as Parquet")
    draft = _Draft()
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        if line.rstrip() == EXPECTATION:
            break
        try:
            if words := values.tokens(line):
                _take(draft, words)
        except (ValueError, BatchspecError) as error:
            raise TraceError(f"{name}:{number}: {one_line(error)}") from None
    if not draft.lines:
        raise TraceError(f"{name}: no events at all; an event line is `STEP KIND REQUEST column=value`")
    events = list(_events(draft.lines))
    header = Header.from_json(json.dumps({**draft.header, "config": draft.config}))
    return Trace.from_events(events, header, name)


def _take(draft: _Draft, words: list[str]) -> None:
    first, rest = words[0], words[1:]
    if draft.ended:
        raise ValueError("nothing may follow `end`")
    if first == "end":
        if rest:
            raise ValueError("`end` stands alone on its line")
        draft.ended = draft.header["complete"] = True
    elif first in ("profile", "header", "cfg"):
        if draft.lines:
            raise ValueError(f"`{first}` stands before the first event")
        _SETTINGS[first](draft, rest)
    elif first[0].isdigit() or first[0] == "-":
        line = _line(words, draft.integer_ids)
        draft.rows += line.last - line.first + 1
        if draft.rows > MAX_ROWS:
            raise ValueError(f"over {MAX_ROWS} rows; record such a trace as Parquet")
        draft.lines.append(line)
    else:
        raise ValueError(f"{shown(first)} is neither a step number nor cfg, profile, header or end")


def _profile(draft: _Draft, rest: list[str]) -> None:
    if len(rest) != 1 or "profile" in draft.header:
        raise ValueError("`profile` takes one name, once")
    draft.header["profile"] = values.text(rest[0])


def _cfg(draft: _Draft, rest: list[str]) -> None:
    for token in rest:
        key, value = _pair(token)
        if key in ("name", "summary", "sources"):
            draft.config[key] = json.loads(value) if key == "sources" else values.text(value)
            continue
        group, name = values.option(key)
        table = draft.config.setdefault(group, {})
        if name in table:
            raise ValueError(f"option {group}.{name} is given twice")
        table[name] = values.option_value(group, name, value)
    Profile.from_dict(draft.config, where="cfg")


def _header(draft: _Draft, rest: list[str]) -> None:
    for token in rest:
        key, value = _pair(token)
        if key not in _HEADER_KEYS:
            raise ValueError(f"unknown header key {shown(key)}{nearest(key, _HEADER_KEYS)}")
        if key == "ids":
            if value not in ("int", "string"):
                raise ValueError(f"ids must be int or string, not {shown(value)}")
            draft.integer_ids = value == "int"
        elif key == "extra":
            draft.header.update(_extra(value))
        elif key in ("producer", "producer_version"):
            inner = "name" if key == "producer" else "version"
            draft.header.setdefault("producer", {})[inner] = values.text(value)
        elif key == "complete":
            draft.header[key] = values.flag(value)
        elif key == "hash_block" or (key == "started_at" and value.lstrip("-").isdigit()):
            draft.header[key] = values.integer(value)
        else:
            draft.header[key] = values.text(value)
    Header.from_json(json.dumps(draft.header))


def _extra(token: str) -> dict[str, Any]:
    data = json.loads(token)
    if not isinstance(data, dict) or any(key in Header.__dataclass_fields__ for key in data):
        raise ValueError("extra must be a JSON object of keys that the header does not know")
    return data


_SETTINGS: Final[dict[str, Callable[[_Draft, list[str]], None]]] = {
    "profile": _profile,
    "cfg": _cfg,
    "header": _header,
}


def _pair(token: str) -> tuple[str, str]:
    found = values.pair(token)
    if found is None:
        raise ValueError(f"{shown(token)} is not name=value")
    return found


def _line(words: list[str], integer_ids: bool) -> _Line:
    first, dots, last = words[0].partition("..")
    start = values.integer(first)
    line = _Line(start, values.integer(last) if dots else start, {})
    if start < 0 or line.last < start:
        raise ValueError(f"{shown(words[0])} is not a step, nor a range of steps that rises")
    if len(words) < 2 or words[1] not in KINDS:
        kind = words[1] if len(words) > 1 else ""
        raise ValueError(f"unknown event {shown(kind)}{nearest(kind, KINDS)}")
    kind = line.fields["event"] = words[1]
    bare = [token for token in words[2:] if values.pair(token) is None]
    if kind not in WITHOUT_REQUEST and bare:
        line.fields["request"] = _identity(bare.pop(0), integer_ids)
    if bare:
        line.fields["resource" if kind in ("take", "give") else "reason"] = values.text(bare.pop(0))
    if bare:
        raise ValueError(f"{shown(bare[0])}: what is it? Write column=value")
    for token in words[2:]:
        if (found := values.pair(token)) is not None:
            _column(line, *found, integer_ids)
    if kind not in WITHOUT_REQUEST and "request" not in line.fields:
        raise ValueError(f"{kind} is about a request: write its id behind the word")
    reason = line.fields.get("reason")
    if kind in EFFECT_BY_REASON and reason is not None and reason not in REASONS[kind]:
        raise ValueError(f"{kind} with reason {shown(reason)}; known are {', '.join(REASONS[kind])}")
    return line


def _column(line: _Line, key: str, token: str, integer_ids: bool) -> None:
    column = ALIASES.get(key, key)
    if column not in COLUMNS or column in _NOT_PAIRS:
        names = [name for name in (*COLUMNS, *ALIASES) if name not in _NOT_PAIRS]
        raise ValueError(f"unknown column {shown(key)}{nearest(key, names)}")
    where = "pass_" if column == "pass" else column
    if where in line.fields:
        raise ValueError(f"column {column} is given twice")
    what = family(column)
    try:
        if what == "id":
            value: Any = _identity(token, integer_ids)
        elif what == "word":
            value = values.text(token)
        elif what == "ints":
            value = values.integers(token)
        elif column == "time_ns":
            line.later = values.duration(token[1:]) if token.startswith("+") else None
            value = values.duration(token.removeprefix("+"))
        elif column == "start" and token == _CONTINUE:
            value = _CONTINUE
        else:
            value = values.integer(token)
            if value < 0 and column not in SIGNED:
                raise ValueError(f"{value} is negative")
    except ValueError as error:
        raise ValueError(f"column {column}: {error}") from None
    line.fields[where] = value


def _identity(token: str, integer_ids: bool) -> RequestId:
    return values.integer(token) if integer_ids else values.text(token)


def _events(lines: list[_Line]) -> Iterator[Event]:
    at: dict[RequestId | None, int] = {}
    drafts: dict[RequestId | None, int] = {}
    clock = begin = 0
    while begin < len(lines):
        head = lines[begin]
        end = begin + 1
        while end < len(lines) and head.first < head.last and _same_range(lines[end], head):
            end += 1
        for step in range(head.first, head.last + 1):
            for line in lines[begin:end]:
                fields = line.fields
                if fields.get("start") == _CONTINUE:
                    fields = {**fields, "start": at.get(fields.get("request"), 0)}
                if line.later is not None:
                    fields = {**fields, "time_ns": clock + line.later}
                clock = fields.get("time_ns", clock)
                event = Event(step, **fields)
                _stand(event, at, drafts)
                yield event
        begin = end


def _same_range(line: _Line, head: _Line) -> bool:
    return line.first == head.first and line.last == head.last


def _stand(event: Event, at: dict[RequestId | None, int], drafts: dict[RequestId | None, int]) -> None:
    """Keep the position at which each request stands, for `start=+`."""
    who = event.request
    if event.event == "schedule":
        at[who] = (event.start or 0) + (event.tokens or 0)
        drafts[who] = event.drafts or 0
    elif event.event == "output" and drafts.get(who):
        at[who] = at.get(who, 0) - (drafts.pop(who) + 1 - (event.tokens or 0))
    elif event.event in ("admit", "resume"):
        at[who] = event.cached or 0
    elif event.event == "live":
        at[who] = event.start or 0
    elif event.event in ("arrive", "preempt") and event.reason != "swap":
        at[who] = 0


def format_scenario(trace: Trace | Iterable[Event], header: Header | None = None) -> str:
    """The text form of a trace, or of events with a header."""
    events = trace.events() if isinstance(trace, Trace) else iter(trace)
    if header is None:
        header = trace.header if isinstance(trace, Trace) and trace.header is not None else Header()
    lines = [_event_text(event) for event in events]
    integer = isinstance(trace, Trace) and trace.id_type is int
    return "\n".join([*_header_lines(header, integer), *lines, *(["end"] if header.complete else []), ""])


def _header_lines(header: Header, integer_ids: bool) -> Iterator[str]:
    if header.profile is not None:
        yield f"profile {values.quoted(header.profile)}"
    known = {
        "begins": None if header.begins == "empty" else header.begins,
        "outputs": header.outputs,
        "clock": header.clock,
        "started_at": header.started_at,
        "hash_block": header.hash_block,
        "producer": header.producer_name,
        "producer_version": header.producer_version,
        "ids": "int" if integer_ids else None,
        "extra": dict(header.extra) or None,
    }
    if said := [f"{key}={_header_value(value)}" for key, value in known.items() if value is not None]:
        yield " ".join(["header", *said])
    for group, table in header.config.items():
        if isinstance(table, dict):
            if table:
                pairs = [f"{group}.{name}={values.option_text(value)}" for name, value in table.items()]
                yield " ".join(["cfg", *pairs])
        else:
            yield f"cfg {group}={json.dumps(table, separators=(',', ':'))}"


def _header_value(value: Any) -> str:
    if isinstance(value, str):
        # A text of digits must not come back as a number.
        return json.dumps(value) if value.lstrip("-").isdigit() else values.quoted(value)
    return values.option_text(value)


def _event_text(event: Event) -> str:
    parts = [str(event.step), event.event]
    left = dict(zip(COLUMNS, event, strict=True))
    bare = ["resource" if event.event in ("take", "give") else "reason"]
    if event.event not in WITHOUT_REQUEST:
        bare.insert(0, "request")
    for column in bare:
        if (value := left.pop(column)) is not None:
            parts.append(values.quoted(str(value)))
    for column, value in left.items():
        if value is not None and column not in _NOT_PAIRS:
            parts.append(f"{_SHORT.get(column, column)}={_column_text(column, value)}")
    return " ".join(parts)


def _column_text(column: str, value: Any) -> str:
    if column == "time_ns":
        return values.duration_text(value)
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return values.quoted(value) if isinstance(value, str) else str(value)
