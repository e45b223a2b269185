"""SGLang's request log as text (`--log-requests`, its usual format): the parts of one line.

    [2026-03-01 09:30:00] Receive: obj=GenerateReqInput(rid='…', sampling_params={'max_new_tokens': 12, …})
    [2026-03-01 09:30:00] Finish: obj=GenerateReqInput(rid='…', …), out={'text': '…', 'meta_info': {…}}

What stands there are Python's own words for values. They are taken apart token by token and never run;
texts of prompts and outputs are passed over. Long ones are cut by the server, which does no harm.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from batchspec.traces.importers.times import date

_LINE: Final = re.compile(
    r"(?:\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)[^\]]{0,80}\] ?)?(Receive|Finish): obj=", re.ASCII
)
_TOKEN: Final = re.compile(
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[-+]?[0-9][0-9.eE+-]*|[A-Za-z_]\w*|[{}\[\]():,=]""", re.ASCII
)
_OPEN, _SHUT = frozenset("{[("), frozenset("}])")
_ESCAPED: Final = re.compile(r"\\(.)")
_META: Final = "'meta_info': {"
_MOST_TOKENS: Final = 4096
"""A `meta_info` with more (log probabilities) is read so far."""


class Line(NamedTuple):
    """One line: `Receive` or `Finish`, when it was written (ns since 1970), what was asked, what came out."""

    kind: str
    written: int | None
    request: str | None
    sampling: Mapping[str, Any]
    meta: Mapping[str, Any]


def line_of(text: str) -> Line | None:
    """The parts of a line; None for a line about something else."""
    found = _LINE.match(text)
    if found is None:
        return None
    cut = text.rfind(_META) if found[2] == "Finish" else -1
    asked = _pairs(text, text.find("(", found.end(), found.end() + 80))
    sampling = {key.removeprefix("sampling_params."): value for key, value in asked.items() if "." in key}
    meta = dict(_pairs(text, cut + len(_META) - 1)) if cut >= 0 else {}
    reason = meta.pop("finish_reason.type", None)
    if reason is not None:
        meta["finish_reason"] = {"type": reason}
    return Line(found[2], None if found[1] is None else date(found[1]), asked.get("rid"), sampling, meta)


def _pairs(text: str, at: int) -> dict[str, Any]:
    """Names and plain values of a dictionary or call that begins at `at`, and those one level deeper."""
    out: dict[str, Any] = {}
    if at < 0:
        return out
    names: list[str | None] = []
    before = name = None
    for token in _tokens(text, at):
        if token in _OPEN:
            names.append(name)
            name = None
            if len(names) > 64:
                break
        elif token in _SHUT:
            names.pop()
            if not names:
                break
            name = None
        elif token in ":=":
            name = before
        elif token == ",":
            name = None
        elif name is not None and len(names) <= 2:
            key = name if len(names) == 1 else f"{names[1]}.{name}"
            out.setdefault(key, None if token == "None" else _plain(token))
            name = None
        before = _plain(token)
    return out


def _tokens(text: str, at: int) -> Iterator[str]:
    for count, found in enumerate(_TOKEN.finditer(text, at)):
        if count >= _MOST_TOKENS:
            return
        yield found[0]


def _plain(token: str) -> str:
    """A text without its quotes; another token as it stands."""
    return _ESCAPED.sub(r"\1", token[1:-1]) if token[0] in "'\"" else token
