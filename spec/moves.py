"""Who is where: requests enter, change queues, take and leave seats, and end. In place, for actions.py."""

from batchspec.spec import holdings
from batchspec.spec.events import Event, RequestId
from batchspec.spec.model import PARKED, PREEMPTED, RUNNING, WAITING, End, Request, State


def begin(state: State, record: Request) -> None:
    """Enter a request into the books, in the queue of its state."""
    state.arrivals += 1
    state.places += 1
    state.live[record.id] = record
    queue_of(state, record.state)[record.id] = None
    if record.blocks is None:
        state.unknown_blocks += 1


def known(state: State, event: Event) -> Request:
    """The live record of the event's request; an unknown one begins here, with unknown lengths."""
    request = event.subject
    record = state.live.get(request)
    if record is None:
        state.ended.pop(request, None)
        record = Request(
            id=request,
            number=state.arrivals,
            arrived=event.step,
            place=state.places,
            computed=None,
            adopts=True,
            outputs=None,
            blocks=None if state.has_blocks or state.has_ids else 0,
            late=True,
        )
        begin(state, record)
    return record


def queue_of(state: State, where: str) -> dict[RequestId, None]:
    """The ids of the live requests in one state."""
    return {
        WAITING: state.waiting,
        PARKED: state.parked,
        RUNNING: state.running,
        PREEMPTED: state.preempted,
    }[where]


def move(state: State, record: Request, where: str) -> None:
    """Put a live request into another queue; joining the batch gives it the next join ordinal."""
    queue_of(state, record.state).pop(record.id, None)
    queue_of(state, where)[record.id] = None
    if where == RUNNING and record.state != RUNNING:
        joined = state.joins
        state.joins += 1
        first = joined if record.first_admit is None else record.first_admit
        record = record._replace(state=where, joined=joined, first_admit=first)
        if len(state.running) == 1 and state.barrier:
            state.batch_step = state.step
    else:
        record = record._replace(state=where)
    state.live[record.id] = record


def join(state: State, event: Event) -> None:
    """Join the batch: `admit` and `resume` are the same but for where they come from."""
    record = known(state, event)
    if record.swapped:
        holdings.count_swapped(state, record, -1)
    if record.state == RUNNING:
        leave_seat(state, record, None)
    move(state, record, RUNNING)
    record = state.live[record.id]
    cached = event.cached
    holdings.count_positions(state, cached, 1)
    record = record._replace(slot=event.slot, swapped=False, adopts=cached is None, computed=cached)
    state.live[record.id] = record
    if event.slot is not None:
        state.slots[event.slot] = record.id
    holdings.grant(state, event, record)
    state.admitted[record.id] = event.event
    state.decisions += 1


def end(state: State, event: Event, kind: str) -> None:
    """End an incarnation: its seat and blocks go, at once or when their lag has run out."""
    record = known(state, event)
    request = record.id
    pass_step = event.pass_step if kind == "finish" else event.step
    if record.state == RUNNING:
        lag = state.slot_lag + (1 if kind == "finish" else 0)
        leave_seat(state, record, pass_step + lag if lag else None)
    if record.swapped:
        holdings.count_swapped(state, record, -1)
    holds_on = state.block_lag != 0 and kind != "reject"
    free_from = None
    if holds_on and isinstance(state.block_lag, int):
        free_from = pass_step + state.block_lag + (1 if kind == "finish" else 0)
        # The result of a pass may be read so late that the lag has run out: its blocks are free at once.
        holds_on = free_from > event.step or bool(event.blocks)
    if not (holds_on and free_from is not None and not event.blocks):
        holdings.give_back(state, event, record, all_of=not holds_on)
    record = state.live.pop(request)
    queue_of(state, record.state).pop(request, None)
    if record.blocks is None or record.blocks or state.tables.get(request):
        state.held_by_ended[request] = record.blocks
        if free_from is not None and holds_on:
            state.lagged.append((free_from, request))
    else:
        state.tables.pop(request, None)
        state.untold.pop(request, None)
    if state.barrier and not state.running:
        state.batch_step = None
    state.ended[request] = End(
        kind, event.step, pass_step, record.number, event.block_ids is not None, event.reason
    )
    state.ended_now[request] = kind
    if kind == "reject":
        state.decisions += 1


def leave_seat(state: State, record: Request, free_from: int | None) -> None:
    """Give up slot and seat; the seat may be taken from step `free_from` on (None: at once)."""
    if record.slot is not None and state.slots.get(record.slot) == record.id:
        del state.slots[record.slot]
    if record.state == RUNNING:
        holdings.count_positions(state, record.computed, -1)
        if free_from is not None and free_from > (state.step or 0):
            state.retiring.append(free_from)


def take_back(state: State, request: RequestId) -> None:
    """Undo a membership of this step: a later preempt or abort of the same step does that."""
    member = state.members.pop(request, None)
    if member is None or request in state.emitted:
        return
    if state.step_tokens is not None and member.tokens is not None:
        state.step_tokens -= member.tokens
    record = state.live.get(request)
    if record is None:
        return
    pending = record.pending
    if state.overlaps and state.step is not None:
        dropped = state.passes.get(state.step, {}).pop(request, None)
        if dropped is not None and dropped.reaches:
            pending -= 1 + dropped.drafts
    state.live[request] = record.moved(record.computed, record.outputs, pending, record.blocks)


def forget(state: State, request: RequestId) -> None:
    """Drop an incarnation whose id arrives again while it is live: the newest holds the id."""
    record = state.live.pop(request)
    state.untold.pop(request, None)
    queue_of(state, record.state).pop(request, None)
    leave_seat(state, record, None)
    state.members.pop(request, None)
    if record.swapped:
        holdings.count_swapped(state, record, -1)
    holdings.account(state, record.blocks, 0)
    holdings.drop_ids(state, request, None)
