"""The import log: what an importer kept, what it dropped, and why."""

from dataclasses import dataclass, field

from batchspec.spec.errors import TraceError


@dataclass(slots=True)
class ImportLog:
    """Counts of one import. `strict` turns the first dropped row into an error."""

    strict: bool = False
    kept: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    """Rows dropped, by reason."""
    first: dict[str, str] = field(default_factory=dict)
    """The place of the first row dropped, by reason."""

    def drop(self, where: str, reason: str) -> None:
        """Note a row that cannot become a request. `where` names file and line; `reason` has no numbers."""
        if self.strict:
            raise TraceError(f"{where}: {reason}; without --strict the row is left out")
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        self.first.setdefault(reason, where)

    def summary(self) -> list[str]:
        """One line for what was kept, and one for each reason to drop a row."""
        lines = [f"{self.kept} requests imported"]
        for reason, count in self.dropped.items():
            lines.append(f"{count} dropped: {reason} (first: {self.first[reason]})")
        return lines
