"""Passes: what each forward pass computed and how long it took, read from the rows of a trace."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from batchspec.spec.events import Event, RequestId

_IN_FLIGHT: Final = 64
"""Passes that wait for their `complete` row at most; of an older one nobody knows when it ended."""


class Pass(NamedTuple):
    """One step with members. Times are nanoseconds of the trace's clock, None where it has none.

    `decodes` counts members that compute a position behind their prompt, `kv_positions` the positions
    that attention reads (each member's end), `pairs` query times key positions (causal). `waiting`,
    `running` and `free_blocks` are what the engine reports at the end of the step.
    """

    step: int
    began_ns: int | None
    ended_ns: int | None
    members: int
    tokens: int
    decodes: int
    kv_positions: int
    pairs: int
    waiting: int | None = None
    running: int | None = None
    free_blocks: int | None = None

    @property
    def duration_ns(self) -> int | None:
        """From the first membership (or `dispatch`) to the end of the step (or `complete`)."""
        if self.began_ns is None or self.ended_ns is None:
            return None
        return self.ended_ns - self.began_ns


def passes(events: Iterable[Event]) -> Iterator[Pass]:
    """The passes of a trace, in order, as it streams by.

    Members are those of trace.md: scheduled and not preempted or aborted later in the step. With
    `dispatch` and `complete` rows the times are theirs, so passes of an overlapping engine overlap.
    """
    prompts: dict[RequestId, int | None] = {}
    members: dict[RequestId, tuple[int, int, bool]] = {}
    dispatched: dict[int, int | None] = {}
    held: dict[int, Pass] = {}
    step: int | None = None
    began: int | None = None
    last: int | None = None

    def close(end: Event | None) -> Iterator[Pass]:
        nonlocal members, began
        if members and step is not None:
            sizes = members.values()
            made = Pass(
                step,
                began,
                last if end is None else end.time_ns,
                len(members),
                sum(tokens for _, tokens, _ in sizes),
                sum(decode for _, _, decode in sizes),
                sum(start + tokens for start, tokens, _ in sizes),
                sum(tokens * start + tokens * (tokens + 1) // 2 for start, tokens, _ in sizes),
                None if end is None else end.waiting,
                None if end is None else end.running,
                None if end is None else end.free_blocks,
            )
            if step in dispatched:
                held[step] = made
            else:
                yield made
        members, began = {}, None

    ended: dict[int, int | None] = {}
    for event in events:
        kind = event.event
        if event.step != step:
            yield from close(None)
            step = event.step
        if kind == "schedule":
            start, tokens = event.start or 0, event.tokens or 0
            began = event.time_ns if began is None else began
            prompt = prompts.get(event.subject)
            members[event.subject] = (start, tokens, prompt is not None and start >= prompt)
        elif kind in ("arrive", "live"):
            prompts[event.subject] = event.prompt_tokens
        elif kind in ("preempt", "abort"):
            members.pop(event.subject, None)
        elif kind == "dispatch":
            dispatched[event.pass_step] = event.time_ns
        elif kind == "complete":
            ended[event.pass_step] = event.time_ns
        if kind in ("finish", "abort", "reject"):
            prompts.pop(event.subject, None)
        if event.time_ns is not None and kind != "arrive":
            last = event.time_ns
        if kind == "step":
            yield from close(event)
            for number in [number for number in held if number in ended]:
                made = held.pop(number)
                yield made._replace(began_ns=dispatched.pop(number), ended_ns=ended.pop(number))
            while len(held) > _IN_FLIGHT:
                number = next(iter(held))
                yield held.pop(number)._replace(began_ns=dispatched.pop(number), ended_ns=None)
    yield from close(None)
    yield from (made._replace(ended_ns=None) for made in held.values())
