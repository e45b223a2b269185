"""The import log: what an importer kept, what it left out, and why."""

from dataclasses import dataclass, field
from typing import Final

from batchspec.spec.errors import TraceError

REASONS: Final = 200
"""Different reasons listed; a file made to have more says so instead of filling the memory."""

_MORE: Final = "further reasons, not listed"


@dataclass(slots=True)
class ImportLog:
    """Counts of one import. `strict` turns whatever would be left out into an error.

    `place` and `line` say where the importer stands; the counters take the place from there.
    """

    strict: bool = False
    kept: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    """Rows dropped, by reason."""
    lost: dict[str, int] = field(default_factory=dict)
    """Fields of rows that were kept which could not be carried over, by reason."""
    noted: dict[str, int] = field(default_factory=dict)
    """What a reader should know of rows that were kept, by what it is."""
    first: dict[str, str] = field(default_factory=dict)
    """The place of the first row, by reason."""
    place: str = ""
    """The file at hand."""
    line: int = 0
    """The line at hand; 0 is no line in particular."""
    what: str = "requests"
    """What is imported, in the plural."""
    started_at: str | None = None
    """The wall clock at time 0 of the result, where the source has one."""

    @property
    def where(self) -> str:
        """File and line at hand."""
        return f"{self.place}: line {self.line}" if self.line else self.place

    def drop(self, reason: str) -> None:
        """Count the row at hand as dropped. `reason` has no numbers, so that it groups."""
        if self.strict:
            raise TraceError(f"{self.where}: {reason}; without --strict the row is left out")
        self._count(self.dropped, reason)

    def lose(self, what: str) -> None:
        """Count something of the row at hand that the result cannot hold; the row itself is kept."""
        if self.strict:
            raise TraceError(f"{self.where}: {what}; without --strict it is left out and counted")
        self._count(self.lost, what)

    def omit(self, reason: str) -> None:
        """Count a record that was kept and is left out after all, because the user asked for it."""
        self.kept -= 1
        self._count(self.dropped, reason)

    def note(self, what: str, times: int = 1) -> None:
        """Count something that a reader of the result should know. Never an error."""
        self._count(self.noted, what, times)

    def nothing(self) -> TraceError:
        """The error for a file of which nothing could be kept."""
        for reason, count in self.dropped.items():
            return TraceError(
                f"{self.place}: none of its rows became one of the {self.what}: "
                f"{count} dropped: {reason} (first: {self.first[reason]})"
            )
        return TraceError(f"{self.place}: no rows at all; nothing to import")

    def summary(self) -> list[str]:
        """One line for what was kept, and one for each reason to drop, lose or note something."""
        lines = [f"{self.kept} {self.what} imported"]
        for counts, verb in ((self.dropped, "dropped"), (self.lost, "left out"), (self.noted, "noted")):
            for reason, count in counts.items():
                lines.append(f"{count} {verb}: {reason} (first: {self.first[reason]})")
        return lines

    def _count(self, counts: dict[str, int], reason: str, times: int = 1) -> None:
        if reason not in counts and len(counts) >= REASONS:
            reason = _MORE
        counts[reason] = counts.get(reason, 0) + times
        self.first.setdefault(reason, self.where)
