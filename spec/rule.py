"""The rule: a named object with a sentence, a premise, its columns, a source, and a judgement.

A rule class says what it is in class attributes and judges in hook methods. One instance judges one
trace; it keeps what it must remember. The checker calls, for an event of kind `k`:

    before_k(event, record)   the books as they were; `record` is the live request, or None
    after_k(event, record)    the books with the event in effect
    emitted(record, tokens, member)   an output was counted, derived or recorded
    decided()                 the members of the step are final: at its first result, or its end
    closing(event)            the step ends (`event` is its `step` row, or None)
    opened(event)             the first row of the next step; the books are of the new step
    over(complete)            the trace ends

A hook that a rule does not define costs nothing.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, Literal

from batchspec.spec.events import RequestId
from batchspec.spec.line import Line
from batchspec.spec.model import State
from batchspec.spec.profile import Profile
from batchspec.spec.verdict import Finding

Kind = Literal["always", "bounded", "end", "sometimes"]
Sink = Callable[["Rule", Finding, tuple[Any, ...]], None]

L4_KINDS: Final = ("dispatch", "complete")


class Rule:
    """Base of all rules. Subclasses set the class attributes and define hooks."""

    id: ClassVar[str]
    sentence: ClassVar[str]
    premise: ClassVar[tuple[str, ...]] = ()
    columns: ClassVar[tuple[str, ...]] = ()
    kind: ClassVar[Kind] = "always"
    level: ClassVar[str] = "L1"
    source: ClassVar[str]
    repairs: ClassVar[bool] = False
    opt_in: ClassVar[bool] = False

    def __init__(self, state: State, line: Line, sink: Sink) -> None:
        """Judge the trace behind these books; findings go to `sink`."""
        self.state = state
        self.line = line
        self.profile = state.profile
        self.patience = state.profile.patience_of(self.id)
        self.checked = 0
        self.skipped = 0
        self._sink = sink

    @classmethod
    def missing(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> tuple[str, ...]:
        """What this rule needs and does not get: options not claimed, columns that are not there.

        A premise is `group.option`, which must be claimed (and not false), or `group.option=a|b`.
        """
        lacking = [item for item in cls.premise if not claimed(profile, item)]
        lacking += [item for item in cls.columns if item not in columns]
        return tuple(lacking + list(cls.needs(profile, columns, kinds)))

    @classmethod
    def needs(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> Sequence[str]:
        """Further needs that depend on the profile or on what the trace holds."""
        return ()

    def hook(self, name: str) -> Callable[..., None] | None:
        """The hook of that name, if this rule has one and has a use for it under this profile."""
        found: Callable[..., None] | None = getattr(self, name, None)
        return found

    def open(self) -> bool:
        """Whether an obligation was still within its bound when the trace ended."""
        return False

    def lacking(self) -> tuple[str, ...]:
        """What kept every instance from being judged, for a rule whose needs show only on the way."""
        return ()

    def over(self, complete: bool) -> None:
        """The trace ends here."""

    def flag(
        self,
        message: str,
        *requests: RequestId,
        expected: str,
        observed: str,
        about: tuple[Any, ...] = (),
        step: int | None = None,
        row: int | None = None,
    ) -> None:
        """Report one violation, at this row unless another is given.

        `about` names slots and blocks, as ("slot", 3), whose own repairs make this a consequence.
        """
        state = self.state
        finding = Finding(
            rule=self.id,
            step=state.step if step is None else step,
            row=state.row if row is None else row,
            requests=requests,
            expected=expected,
            observed=observed,
            message=message,
        )
        self._sink(self, finding, about)


def claimed(profile: Profile, premise: str) -> bool:
    """Whether a profile claims a premise: `group.option` (and not false), or `group.option=a|b`."""
    path, _, values = premise.partition("=")
    claimed = profile.claim(path)
    if claimed is None:
        return False
    if values:
        return str(claimed).lower() in values.split("|")
    return claimed is not False
