"""Waivers: known violations that a user accepts for now, as a data file with a reason for each.

    [[waiver]]
    rule = "slots/reuse"                     # a rule's id
    reason = "the router fills seats one step late"
    link = "https://example.org/issues/12"   # optional, like all that follow
    request = "r7"                           # only findings about this request (a number for integer ids)
    steps = [10, 20]                         # only findings of these steps, both ends included
    expires = 2027-01-31                     # the last day on which it covers

A finding that a waiver covers is counted apart and breaks nothing. What day it is, is an argument.
"""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final

from batchspec.replay.conform.kinds import ALL_RULES
from batchspec.spec.errors import BatchspecError
from batchspec.spec.events import RequestId
from batchspec.spec.verdict import Finding, Report
from batchspec.traces.text import nearest, one_line, shown

LARGEST_FILE: Final = 1 << 20
"""A waiver file with more bytes than this is refused."""


class WaiverError(BatchspecError):
    """A waiver file that cannot be read, or an entry that is not one. Mend the entry that it names."""


@dataclass(frozen=True, slots=True)
class Waiver:
    """One accepted violation. What is None restricts nothing; `expires` is the last day it covers.

    `number` is the entry's place in its file, counted from 1.
    """

    number: int
    rule: str
    reason: str
    link: str | None = None
    request: RequestId | None = None
    steps: tuple[int, int] | None = None
    expires: date | None = None

    def matches(self, finding: Finding) -> bool:
        """Whether a finding is one of those meant, whatever the date."""
        if finding.rule != self.rule:
            return False
        if self.request is not None and self.request not in finding.requests:
            return False
        if self.steps is None:
            return True
        return finding.step is not None and self.steps[0] <= finding.step <= self.steps[1]

    def expired(self, today: date) -> bool:
        """Whether its last day is over."""
        return self.expires is not None and today > self.expires

    def __str__(self) -> str:
        """`waiver 2 (slots/reuse, request r7, steps 10 to 20)`."""
        parts = [self.rule]
        if self.request is not None:
            parts.append(f"request {one_line(self.request, 40)}")
        if self.steps is not None:
            parts.append(f"steps {self.steps[0]} to {self.steps[1]}")
        return f"waiver {self.number} ({', '.join(parts)})"


class Waived:
    """The waivers of a file, held against the findings of one trace: call it with each finding.

    A waiver whose last day is over covers nothing, but what it would have covered is counted.
    """

    def __init__(self, waivers: Sequence[Waiver], today: date) -> None:
        """No finding was seen yet. `today` decides which waivers still hold."""
        self.waivers = tuple(waivers)
        self.today = today
        self.counts = [0] * len(self.waivers)
        self.firsts: dict[int, Finding] = {}

    def __call__(self, finding: Finding) -> bool:
        """Whether a waiver covers this finding. Every waiver that it matches counts it."""
        covered = False
        for place, waiver in enumerate(self.waivers):
            if waiver.matches(finding):
                self.counts[place] += 1
                self.firsts.setdefault(place, finding)
                covered = covered or not waiver.expired(self.today)
        return covered

    def reset(self) -> None:
        """Forget every finding: the trace is gone through once more."""
        self.counts = [0] * len(self.waivers)
        self.firsts = {}

    def covered(self) -> Iterable[tuple[Waiver, Finding, int]]:
        """Each waiver that covered something, with the first finding and their number."""
        for place, finding in sorted(self.firsts.items()):
            waiver = self.waivers[place]
            if not waiver.expired(self.today):
                yield waiver, finding, self.counts[place]


def remarks(uses: Sequence[Waived], reports: Sequence[Report]) -> list[str]:
    """What is to be said of the waivers of one file after a run over several traces, a sentence each.

    A waiver that matches nothing is named, and so is one that is out of date. `reports` are those of
    the traces that `uses` were held against; a waiver of a rule that no report has is left alone.
    """
    if not uses:
        return []
    told = []
    for place, waiver in enumerate(uses[0].waivers):
        results = [result for report in reports for result in report.rules if result.id == waiver.rule]
        if not results:
            continue
        matched = sum(use.counts[place] for use in uses)
        if waiver.expired(uses[0].today):
            many = "violation" if matched == 1 else "violations"
            told.append(
                f"{waiver} expired on {waiver.expires} and no longer covers"
                + (f" {matched:,} {many}" if matched else " anything; nothing matches it either: remove it")
            )
        elif not matched:
            unjudged = all(result.verdict == "not checkable" for result in results)
            told.append(
                f"{waiver} matches nothing"
                + (": its rule was not checkable here" if unjudged else ": remove it, or mend what it names")
            )
    return told


# -- the file --------------------------------------------------------------------------------------

_KEYS: Final = ("rule", "reason", "link", "request", "steps", "expires")


def load_waivers(path: str | Path) -> tuple[Waiver, ...]:
    """The waivers of a TOML file, in its order. Raises `WaiverError` with the file and what to mend."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise WaiverError(f"{path}: cannot be read ({error.strerror or error})") from error
    if len(raw) > LARGEST_FILE:
        raise WaiverError(f"{path}: more than {LARGEST_FILE} bytes, so it is no waiver file")
    try:
        data = tomllib.loads(raw.decode("utf-8"))
    except RecursionError as error:
        raise WaiverError(f"{path}: not valid TOML (nested too deeply)") from error
    except ValueError as error:
        raise WaiverError(f"{path}: not valid TOML ({one_line(error)})") from error
    return parse_waivers(data, str(path))


def parse_waivers(data: Mapping[str, Any], where: str = "waivers") -> tuple[Waiver, ...]:
    """Waivers from plain data in the shape of the file. `where` is what an error calls the source."""
    for key in data:
        if key != "waiver":
            raise WaiverError(f"{where}: unknown key {shown(key)}; write each waiver as [[waiver]]")
    entries = data.get("waiver", [])
    if not isinstance(entries, list):
        raise WaiverError(f"{where}: write each waiver as [[waiver]], in double brackets")
    return tuple(_waiver(entry, number, where) for number, entry in enumerate(entries, 1))


def _waiver(entry: Any, number: int, where: str) -> Waiver:
    place = f"{where}: waiver {number}"
    if not isinstance(entry, Mapping):
        raise WaiverError(f"{place}: must be a table with rule and reason, not {shown(entry)}")
    for key in entry:
        if key not in _KEYS:
            raise WaiverError(f"{place}: unknown key {shown(key)}{nearest(key, _KEYS)}")
    rule = _text(entry, "rule", place)
    if rule is None:
        raise WaiverError(f'{place}: names no rule; write rule = "slots/reuse" or the like')
    if rule not in ALL_RULES:
        hint = nearest(rule, ALL_RULES)
        raise WaiverError(
            f"{place}: unknown rule {shown(rule)}"
            + (hint if "did you mean" in hint else "; `batchspec rules` lists them")
        )
    reason = _text(entry, "reason", place)
    if reason is None or not reason.strip():
        raise WaiverError(f"{place}: {rule} is waived without a reason; write one under `reason`")
    return Waiver(
        number=number,
        rule=rule,
        reason=reason.strip(),
        link=_text(entry, "link", place),
        request=_request(entry.get("request"), place),
        steps=_steps(entry.get("steps"), place),
        expires=_day(entry.get("expires"), place),
    )


def _text(entry: Mapping[str, Any], key: str, place: str) -> str | None:
    value = entry.get(key)
    if not isinstance(value, str | None):
        raise WaiverError(f"{place}: {key} must be a text, not {shown(value)}")
    return value


def _request(value: Any, place: str) -> RequestId | None:
    if isinstance(value, bool) or not isinstance(value, str | int | None):
        raise WaiverError(f"{place}: request must be an id (a text or a whole number), not {shown(value)}")
    return value


def _steps(value: Any, place: str) -> tuple[int, int] | None:
    if value is None:
        return None
    pair = [value, value] if isinstance(value, int) else value
    whole = isinstance(pair, list) and all(
        isinstance(step, int) and not isinstance(step, bool) and step >= 0 for step in pair
    )
    if not whole or len(pair) != 2 or pair[0] > pair[1]:
        raise WaiverError(f"{place}: steps must be a step, or [first, last] with both included")
    return pair[0], pair[1]


def _day(value: Any, place: str) -> date | None:
    if isinstance(value, str):
        with suppress(ValueError):
            value = date.fromisoformat(value)
    # A TOML date with a time of day is a datetime, which is a date to Python.
    if value is not None and (isinstance(value, datetime) or not isinstance(value, date)):
        raise WaiverError(f"{place}: expires must be a day such as 2027-01-31, not {shown(str(value))}")
    return value
