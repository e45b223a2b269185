"""The notes that `vllm_notes` takes, as rows of a trace."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from batchspec.replay.adapters.vllm_notes import SHARE, Decisions, Joined, Left, Passed
from batchspec.spec.events import Event

_ABORTS: Final = ("client", "operator")


class Run(NamedTuple):
    """Shares that stand next to each other, by the column."""

    requests: list[Any]
    tokens: list[int]
    grants: list[Any]
    starts: Sequence[int]


class Rows:
    """Turns notes into rows. How many blocks a request holds is the sum of what it was given."""

    def __init__(self) -> None:
        """Nobody holds anything."""
        self.held: dict[str, int] = {}

    def decided(self, decisions: Decisions) -> Iterator[Event]:
        """The rows of an iteration, in order."""
        for part in self.in_order(decisions):
            if isinstance(part, Run):
                for request, tokens, grant, start in zip(*part, strict=True):
                    yield self._member(request, start, tokens, grant, decisions.drafts)
            else:
                yield from self.other(part, decisions.drafts)

    @staticmethod
    def in_order(decisions: Decisions) -> Iterator[Any]:
        """Runs of shares and, between them, the other notes."""
        shares, starts, at = decisions.shares, decisions.starts, 0
        for place, note in [*decisions.others, (len(shares) // SHARE, None)]:
            if place > at:
                part = shares[at * SHARE : place * SHARE]
                yield Run(part[::SHARE], part[1::SHARE], part[2::SHARE], starts[at:place])
                at = place
            if note is not None:
                yield note

    def other(self, note: Joined | Left | Passed, drafts: Mapping[str, int]) -> Iterator[Event]:
        """The rows of a note that is no share of a running request."""
        if isinstance(note, Joined):
            yield from self._joined(note, drafts)
        elif isinstance(note, Left):
            yield self.preempted(note)
        else:
            reason = "in_flight" if note.in_flight else "not_ready"
            yield Event(0, "skip", note.request.request_id, reason=reason)

    def _member(self, request: Any, start: int, tokens: int, grant: Any, drafts: Mapping[str, int]) -> Event:
        name = request.request_id
        ids = granted(grant)
        blocks = None
        if ids is not None:
            blocks = self.held[name] = self.held.get(name, 0) + len(ids)
        return Event(
            0,
            "schedule",
            name,
            start=start,
            tokens=tokens,
            drafts=drafts.get(name),
            blocks=blocks,
            block_ids=ids,
        )

    def _joined(self, note: Joined, drafts: Mapping[str, int]) -> Iterator[Event]:
        """An admission or a return, and the share of the step."""
        name, ids = note.request.request_id, note.block_ids
        blocks = None
        if ids is not None:
            blocks = self.held[name] = len(ids)
        yield Event(
            0,
            "resume" if note.resumed else "admit",
            name,
            cached=note.cached,
            blocks=blocks,
            block_ids=None if ids is None else tuple(ids),
        )
        yield Event(
            0,
            "schedule",
            name,
            start=note.cached,
            tokens=note.tokens,
            drafts=drafts.get(name),
            blocks=blocks,
            block_ids=None if ids is None else (),
        )

    def preempted(self, note: Left) -> Event:
        """A preemption. One that makes room for nobody is the operator's: a cache reset."""
        cause, ids = note.cause, note.block_ids
        self.held.pop(note.request.request_id, None)
        return Event(
            0,
            "preempt",
            note.request.request_id,
            reason="operator" if cause is None else "recompute",
            cause=None if cause is None else cause.request_id,
            blocks=None if ids is None else 0,
            block_ids=None if ids is None else tuple(ids),
        )

    def ended(self, request: Any, reason: str, block_ids: Sequence[int] | None) -> Event:
        """A finish, or an abort."""
        self.held.pop(request.request_id, None)
        return Event(
            0,
            "abort" if reason in _ABORTS else "finish",
            request.request_id,
            reason=reason,
            output_tokens=request.num_output_tokens,
            blocks=None if block_ids is None else 0,
            block_ids=None if block_ids is None else tuple(block_ids),
        )


def granted(grant: Any) -> tuple[int, ...] | None:
    """The ids of the blocks that an allocation has handed out; None where there are several KV groups."""
    groups = grant.blocks
    return tuple(block.block_id for block in groups[0]) if len(groups) == 1 else None
