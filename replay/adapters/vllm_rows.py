"""The notes that `vllm_notes` takes, as rows of a trace."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from batchspec.replay.adapters.vllm_notes import Joined, Left, Passed
from batchspec.spec.events import Event

_ABORTS: Final = ("client", "operator")


class Rows:
    """Turns notes into rows. How many blocks a request holds is the sum of what it was given."""

    def __init__(self) -> None:
        """Nobody holds anything."""
        self.held: dict[str, int] = {}

    def decided(self, decisions: Iterable[Any], drafts: Mapping[str, int]) -> Iterator[Event]:
        """The rows of an iteration."""
        for note in decisions:
            kind = type(note)
            if kind is tuple:
                yield self._member(note, drafts)
            elif kind is Joined:
                yield from self._joined(note, drafts)
            elif kind is Left:
                yield self.preempted(note)
            elif kind is Passed:
                reason = "in_flight" if note.in_flight else "not_ready"
                yield Event(0, "skip", note.request.request_id, reason=reason)

    def _member(self, note: tuple[Any, int, int, Any], drafts: Mapping[str, int]) -> Event:
        request, start, tokens, grant = note
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
