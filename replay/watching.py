"""Watching: a trace that is still being written, judged as it grows.

Each look opens the trace anew, its closed parts and the journal of the open one, and feeds the rows that
have come since to one walk of the checker. What a rule may judge depends on which columns and kinds of
events there are; where a new one turns up, the walk begins again with what is there. A place is kept as
the part's name and its rows, so parts that a flight recorder drops do not move it.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from batchspec.replay.checker import Walk
from batchspec.replay.claims import claimed
from batchspec.spec.errors import BatchspecError, TraceError
from batchspec.spec.profile import Profile
from batchspec.spec.verdict import Finding, Report
from batchspec.traces.journal import is_part
from batchspec.traces.parts import Part, Parts
from batchspec.traces.reader import open_trace
from batchspec.traces.text import one_line
from batchspec.traces.trace import Trace

_LARGEST_STATE: Final = 1 << 22
_MOST_REPORTED: Final = 10_000


@dataclass(frozen=True)
class Look:
    """What one look found: new findings, and the trace's figures so far.

    `violations` counts by rule, `rows` and `steps` those judged. `began_again` says why the walk did, in
    a few words. `complete` is true once the producer has said that nothing follows.
    """

    findings: tuple[Finding, ...] = ()
    violations: Mapping[str, int] = field(default_factory=dict)
    rows: int = 0
    steps: int = 0
    behind_ns: int | None = None
    began_again: str | None = None
    complete: bool = False
    waiting: bool = False


class Watch:
    """Follows one trace. Call `look` from time to time."""

    def __init__(
        self,
        path: str | Path,
        *,
        profile: Profile | None = None,
        config: Profile | None = None,
        state: str | Path | None = None,
    ) -> None:
        """Nothing is read before the first look. `state` is a file that keeps what was reported.

        Raises `BatchspecError` for a state file that is none.
        """
        self.path = Path(path)
        self._profile = profile
        self._config = config
        self._state = None if state is None else Path(state)
        self._walk: Walk | None = None
        self._place: tuple[str, int] | None = None
        self._reported: dict[tuple[str, int | None, str], None] = self._restored()
        self._last_ns: int | None = None
        self._rows = 0

    def look(self, now_ns: int | None = None) -> Look:
        """Judge what has come since the last look. `now_ns` is the wall clock, for how far behind it is.

        Raises `TraceError` for a trace that is damaged; one that is not there yet is waited for.
        """
        if not self._there():
            return Look(waiting=True)
        parts = Parts(self.path, ()).parts
        trace = open_trace(self.path)
        if Parts(self.path, ()).parts[0].path.name != parts[0].path.name:
            return Look(waiting=True)  # a part was dropped in between: look again
        again = self._changed(trace, [part.path.name for part in parts])
        if self._walk is None or again is not None:
            self._walk = self._begun(trace)
        first = self._next_row(parts)
        for event in trace.events(first, sum(part.rows for part in parts)):
            self._walk.feed(event)
            self._rows += 1
            if event.time_ns is not None:
                self._last_ns = event.time_ns
        self._place = (parts[-1].path.name, parts[-1].rows + parts[-1].repeated)
        counts, listed = self._walk.so_far()
        fresh = tuple(finding for finding in listed if _key(finding) not in self._reported)
        self._reported.update(dict.fromkeys(map(_key, fresh)))
        while len(self._reported) > _MOST_REPORTED:
            del self._reported[next(iter(self._reported))]
        self._keep()
        wall = trace.header is not None and trace.header.clock == "wall"
        behind = now_ns - self._last_ns if wall and now_ns is not None and self._last_ns else None
        return Look(
            fresh, counts, self._rows, self._walk.state.steps, behind, again, trace.complete, waiting=False
        )

    def report(self) -> Report | None:
        """The verdict of what was judged, at the end; None where nothing was there."""
        if self._walk is None:
            return None
        complete = self._there() and open_trace(self.path).complete
        report = self._walk.report(str(self.path), complete)
        self._walk = None
        return report

    # -- where it stands ---------------------------------------------------------------------------

    def _there(self) -> bool:
        if not self.path.exists():
            # A single file that has only its journal yet.
            return self.path.with_name(self.path.name + ".journal").exists()
        return not self.path.is_dir() or any(is_part(file) for file in self.path.iterdir())

    def _changed(self, trace: Trace, names: list[str]) -> str | None:
        """Why the walk has to begin again, if it has to."""
        if self._walk is None:
            return None
        if self._place is not None and self._place[0] not in names:
            return "parts that were not read yet are gone"
        fresh = (trace.columns - self._walk.columns) or (set(trace.kinds) - self._walk.kinds)
        return f"new in the trace: {', '.join(sorted(fresh)[:4])}" if fresh else None

    def _begun(self, trace: Trace) -> Walk:
        header = trace.header
        said = (None, None) if header is None else (header.profile, header.config or None)
        profile = claimed(*said, profile=self._profile, config=self._config)
        kinds = frozenset(trace.kinds) | ({"output"} if trace.outputs_recorded else set())
        self._place = None
        self._rows = 0
        return Walk(profile or Profile(), trace.columns, kinds, header=header)

    def _next_row(self, parts: Sequence[Part]) -> int:
        """The first row that was not fed yet. A place counts a part's `live` rows, shown or not."""
        at = 0
        for part in parts:
            if self._place is not None and part.path.name == self._place[0]:
                return at + self._place[1] - part.repeated
            at += part.rows
        return 0

    # -- what was reported -------------------------------------------------------------------------

    def _restored(self) -> dict[tuple[str, int | None, str], None]:
        if self._state is None or not self._state.exists():
            return {}
        try:
            if self._state.stat().st_size > _LARGEST_STATE:
                raise ValueError
            data: Any = json.loads(self._state.read_text(encoding="utf-8"))
            return dict.fromkeys((str(rule), step, str(text)) for rule, step, text in data["reported"])
        except (OSError, ValueError, KeyError, TypeError):
            raise BatchspecError(
                f"{one_line(self._state)}: not the state of a watch; name another file or remove it"
            ) from None

    def _keep(self) -> None:
        if self._state is None:
            return
        scratch = self._state.with_name(self._state.name + ".part")
        try:
            scratch.write_text(json.dumps({"reported": list(self._reported)}), encoding="utf-8")
            scratch.replace(self._state)
        except OSError as error:
            raise BatchspecError(
                f"{one_line(self._state)}: {error.strerror or 'cannot be written'}"
            ) from None


def save_parts(trace: Path, folder: Path) -> int:
    """Copy what is there of a trace, before its recorder drops it. Returns the number of files."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files = [file for file in trace.iterdir() if is_part(file)] if trace.is_dir() else [trace]
        for file in sorted(files):
            shutil.copy2(file, folder / file.name)
    except OSError as error:
        raise TraceError(f"{one_line(folder)}: {error.strerror or 'cannot be written'}") from None
    return len(files)


def _key(finding: Finding) -> tuple[str, int | None, str]:
    return finding.rule, finding.step, finding.message
