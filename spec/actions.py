"""The actions: what each kind of event needs (guard) and what it does (effect).

What several effects share is apart: moves.py (who is where), holdings.py (who holds which blocks); so are
the effects on other resources, transfers and passes: ledgers.py.

A guard is a question about the books before the event; it changes nothing and answers with the states
from which the event is legal. An effect changes the books in place and always applies in full, whatever
the guard said: that is how a check goes on after a violation. The explorer copies the books first.

Sources: the event table and the numbered list "Step, in order" of the trace format.
"""

from collections.abc import Callable
from typing import Final

from batchspec.spec import holdings, ledgers, moves
from batchspec.spec.events import Event, RequestId
from batchspec.spec.model import (
    ENDED,
    PARKED,
    PREEMPTED,
    RUNNING,
    UNKNOWN,
    WAITING,
    End,
    Member,
    Request,
    State,
)
from batchspec.spec.profile import Profile

Effect = Callable[[State, Event], None]

_LIVE: Final = (WAITING, PARKED, RUNNING, PREEMPTED)
_ANY: Final = (*_LIVE, ENDED)

LEGAL_FROM: Final[dict[str, tuple[str, ...]]] = {
    "live": (UNKNOWN,),
    "arrive": (UNKNOWN, ENDED),
    "reject": (WAITING,),
    "park": (WAITING,),
    "ready": (PARKED,),
    "admit": (WAITING,),
    "schedule": (RUNNING,),
    "preempt": (RUNNING,),
    "resume": (PREEMPTED,),
    "output": (RUNNING, PREEMPTED),
    "finish": (RUNNING,),
    "cancel": _LIVE,
    "abort": _LIVE,
    "skip": (WAITING, PARKED, RUNNING, PREEMPTED),
    "release": _ANY,
    "take": _LIVE,
    "give": _ANY,
    "transfer_begin": _ANY,
    "transfer_end": _ANY,
    "deliver": (ENDED,),
}
"""The states from which an event is legal. `UNKNOWN` is a request that has not arrived."""


def legal_from(state: State, event: Event) -> tuple[str, ...]:
    """The states from which this event is legal under the profile of these books."""
    kind = event.event
    if kind == "finish" and state.overlaps:
        return (RUNNING, PREEMPTED)
    if kind == "output" and not state.overlaps:
        return (RUNNING,)
    if kind == "cancel":
        # A client may ask for an end at any moment, also just after the end: nothing is wrong with that.
        return _ANY
    return LEGAL_FROM[kind]


def within_overlap(state: State, end: End) -> bool:
    """An ended request may still be a member of passes k+1 … k+M, k the pass of its end."""
    return state.step is not None and state.step <= end.pass_step + state.overlap_member


# -- steps -----------------------------------------------------------------------------------------


def open_step(state: State, step: int) -> None:
    """Begin an iteration: nobody is a member yet, and what its lag held back becomes free."""
    state.step = step
    state.steps += 1
    state.first_row_of_step = state.row
    if state.members:
        state.members = {}
    state.step_tokens = 0
    state.decided = False
    state.decisions = 0
    state.skips = {}
    state.admitted = {}
    state.preempted_now = {}
    state.ended_now = {}
    state.emitted = {}
    if state.retiring:
        kept = [free_from for free_from in state.retiring if free_from > step]
        state.retiring.clear()
        state.retiring.extend(kept)
    while state.lagged and state.lagged[0][0] <= step:
        holdings.drop_ended(state, state.lagged.popleft()[1])
    if state.overlaps and state.passes:
        # A pass whose outputs never came is settled by nothing; the window bounds what is kept.
        oldest = step - state.profile.value("reuse.depth") - state.slot_lag - 8
        for old in [number for number in state.passes if number < oldest]:
            del state.passes[old]


def derived_output(state: State, request: RequestId) -> int | None:
    """Emit what a member's pass produced where the trace leaves it to be derived.

    One token for a member whose pass reached n. Returns the tokens emitted now, 0 for none, None
    where the trace does not say enough: then o is unknown from here on.
    """
    member = state.members.get(request)
    record = state.live.get(request)
    if state.recorded or member is None or record is None or request in state.emitted:
        return 0
    state.emitted[request] = 1
    if member.reaches is None:
        if record.outputs is not None:
            state.live[request] = record.moved(record.computed, None, record.pending, record.blocks)
        return None
    if not member.reaches or record.outputs is None:
        return 0
    state.live[request] = record.moved(record.computed, record.outputs + 1, record.pending, record.blocks)
    return 1


def close_step(state: State, event: Event | None) -> None:
    """End an iteration, with the engine's own `step` row where it wrote one."""
    if event is not None:
        if event.pinned_blocks is not None:
            state.pinned = event.pinned_blocks
        elif "pinned_blocks" in state.columns or "transfer_begin" in state.kinds:
            state.pinned = None
    state.shared = None


# -- arrivals and ends -----------------------------------------------------------------------------


def arrive(state: State, event: Event) -> None:
    """A request can be seen by the scheduler from this row on."""
    request = event.subject
    if request in state.live:
        moves.forget(state, request)
    if request in state.held_by_ended:
        holdings.set_apart(state, request)
    moves.begin(
        state,
        Request(
            id=request,
            number=state.arrivals,
            prompt=event.prompt_tokens,
            max_tokens=event.max_tokens,
            priority=event.priority,
            tenant=event.tenant,
            arrived=event.step,
            arrived_ns=event.time_ns,
            prediction=event.prediction,
            place=state.places,
            late=state.decisions > 0,
        ),
    )


def live(state: State, event: Event) -> None:
    """A request that was live when the trace begins, as it stood then; `tokens` are those in flight."""
    request = event.subject
    if request in state.live:
        moves.forget(state, request)
    where = event.reason or RUNNING
    computed = event.start if event.start is not None else (0 if where in (WAITING, PARKED) else None)
    joined = None
    if where in (RUNNING, PREEMPTED):
        joined = state.joins
        state.joins += 1
    swapped = where == PREEMPTED and bool(computed)
    record = Request(
        id=request,
        number=state.arrivals,
        prompt=event.prompt_tokens,
        max_tokens=event.max_tokens,
        priority=event.priority,
        tenant=event.tenant,
        arrived=event.step,
        arrived_ns=event.time_ns,
        state=where,
        slot=event.slot,
        place=state.places,
        first_admit=joined,
        joined=joined,
        swapped=swapped,
        adopts=computed is None,
        computed=computed,
        outputs=event.output_tokens,
        pending=event.tokens or 0,
        blocks=0,
    )
    moves.begin(state, record)
    state.lives = state.arrivals
    if where == RUNNING and state.has_ids and event.block_ids is None:
        state.untold[request] = None
    if where == RUNNING:
        holdings.count_positions(state, computed, 1)
        if event.slot is not None:
            state.slots[event.slot] = request
    holdings.grant(state, event, state.live[request])
    if swapped:
        holdings.count_swapped(state, state.live[request], 1)


def reject(state: State, event: Event) -> None:
    """Refused for good."""
    moves.end(state, event, "reject")


def finish(state: State, event: Event) -> None:
    """Complete: its seat and blocks go to the next request."""
    moves.end(state, event, "finish")


def abort(state: State, event: Event) -> None:
    """Ended before completion, by the client or by the operator."""
    moves.take_back(state, event.subject)
    moves.end(state, event, "abort")


def cancel(state: State, event: Event) -> None:
    """The client asked for an end."""
    record = state.live.get(event.subject)
    if record is not None and record.cancelled is None:
        state.live[record.id] = record._replace(cancelled=event.step)


# -- decisions -------------------------------------------------------------------------------------


def park(state: State, event: Event) -> None:
    """Set aside until a condition holds. It may hold blocks meanwhile (a remote load)."""
    record = moves.known(state, event)
    moves.move(state, record, PARKED)
    holdings.grant(state, event, state.live[record.id])
    state.decisions += 1


def ready(state: State, event: Event) -> None:
    """The condition holds: the request waits like any other, at its own place."""
    moves.move(state, moves.known(state, event), WAITING)


def admit(state: State, event: Event) -> None:
    """Join the running batch for the first time."""
    moves.join(state, event)


def resume(state: State, event: Event) -> None:
    """Join the running batch again after a preemption."""
    moves.join(state, event)


def skip(state: State, event: Event) -> None:
    """Looked at and left out of this step."""
    state.skips[event.subject] = event.reason
    state.decisions += 1


def schedule(state: State, event: Event) -> None:
    """Be a member of this step's forward pass, with positions [start, start + tokens)."""
    request = event.request
    record = state.live.get(request)  # type: ignore[arg-type]
    state.decisions += 1
    start, tokens = event.start, event.tokens
    if state.step_tokens is not None:
        state.step_tokens = None if tokens is None else state.step_tokens + tokens
    drafts = event.drafts or 0
    if record is None:
        end = state.ended.get(request)  # type: ignore[arg-type]
        if end is not None and within_overlap(state, end):
            state.members[request] = Member(start, tokens, drafts, False, None, state.row)  # type: ignore[index]
            return
        record = moves.known(state, event)
    if record.state != RUNNING:
        moves.move(state, record, RUNNING)
        record = state.live[record.id]
        holdings.count_positions(state, record.computed, 1)
    computed = None if start is None or tokens is None else start + tokens
    known = record.known
    if computed is None or known is None or (event.drafts is None and not state.drafts_known):
        reaches = None
    else:
        reaches = computed >= known
    pending = record.pending
    member = Member(start, tokens, drafts, reaches, record.computed, state.row)
    if state.overlaps and state.recorded and reaches is not False:
        pass_step = event.step if event.pass_ is None else event.pass_
        state.passes.setdefault(pass_step, {})[record.id] = member
        pending += 1 + drafts if reaches else 0
    state.members[record.id] = member
    if not state.has_blocks:
        holdings.count_positions(state, record.computed, -1)
        holdings.count_positions(state, computed, 1)
    if record.adopts:
        record = record._replace(adopts=False)
    if event.block_ids:
        state.live[record.id] = record.moved(computed, record.outputs, pending, record.blocks)
        holdings.grant(state, event, state.live[record.id])
        return
    blocks = event.blocks
    if blocks is None and state.has_ids:
        blocks = record.blocks
    if blocks != record.blocks:
        holdings.note_untold(state, event, record)
        holdings.account(state, record.blocks, blocks)
    state.live[record.id] = record.moved(computed, record.outputs, pending, blocks)


def preempt(state: State, event: Event) -> None:
    """Leave the batch unfinished: the KV is dropped (recompute) or goes to the host (swap)."""
    record = moves.known(state, event)
    member = state.members.get(record.id)
    moves.take_back(state, record.id)
    record = state.live[record.id]
    swapped = preempt_mode(state, event) == "swap"
    was_running = record.state == RUNNING
    computed = record.computed
    if swapped is True and member is not None:
        computed = member.start
    elif preempt_mode(state, event) in ("recompute", "operator"):
        computed = 0
    elif not swapped:
        computed = None
    moves.leave_seat(state, record, event.step + state.slot_lag if state.slot_lag else None)
    place = record.place
    if state.profile.preemption.resume == "back":
        place = state.places
        state.places += 1
    record = record._replace(
        place=place,
        slot=None,
        swapped=swapped,
        preemptions=record.preemptions + (1 if was_running else 0),
        computed=computed,
        adopts=computed is None,
    )
    state.live[record.id] = record
    moves.move(state, record, PREEMPTED)
    holdings.give_back(state, event, state.live[record.id], all_of=not state.keeps_blocks)
    if not (state.keeps_blocks or event.blocks):
        state.untold.pop(record.id, None)
    if swapped:
        holdings.count_swapped(state, state.live[record.id], 1)
    state.preempted_now[record.id] = event.cause
    state.decisions += 1


def preempt_mode(state: State, event: Event) -> str | None:
    """`recompute`, `swap` or `operator`; a null reason is the profile's one mode, else unknown."""
    return only_mode(state.profile) if event.reason is None else event.reason


def only_mode(profile: Profile) -> str | None:
    """How every preemption is made under this profile, or None. A host with limits may turn a swap away."""
    mode = profile.preemption.mode
    limited = mode == "swap" and profile.limits.host_blocks is not None
    return mode if mode in ("recompute", "swap") and not limited else None


# -- results ---------------------------------------------------------------------------------------


def output(state: State, event: Event) -> None:
    """Tokens emitted by a pass. Rejected drafts are taken back: c -= drafts + 1 - emitted."""
    request = event.subject
    record = state.live.get(request)
    if record is None:
        if request in state.ended:
            return
        record = moves.known(state, event)
    member = part_of(state, event)
    tokens = event.tokens
    computed, pending = record.computed, record.pending
    if member is not None:
        if state.overlaps:
            del state.passes[event.pass_step][request]
            pending -= 1 + member.drafts if member.reaches else 0
        if member.drafts > 0 and computed is not None and record.state == RUNNING:
            computed = None if tokens is None else computed - (member.drafts + 1 - tokens)
            if not state.has_blocks and state.block_size is not None:
                holdings.count_positions(state, record.computed, -1)
                holdings.count_positions(state, computed, 1)
    elif from_before(state, event, record):
        pending = max(0, pending - (tokens or 0))
    state.emitted[request] = tokens
    outputs = None if record.outputs is None or tokens is None else record.outputs + tokens
    state.live[request] = record.moved(computed, outputs, pending, record.blocks)


def from_before(state: State, event: Event, record: Request) -> bool:
    """Whether the pass that an output speaks of was in flight when the trace began."""
    return record.number < state.lives and event.pass_step < record.arrived


def part_of(state: State, event: Event) -> Member | None:
    """The part of the event's request in the pass that the event speaks of, while it is unsettled."""
    request = event.subject
    if state.overlaps:
        return state.passes.get(event.pass_step, {}).get(request)
    if event.pass_step != state.step or request in state.emitted:
        return None
    return state.members.get(request)


def release(state: State, event: Event) -> None:
    """KV blocks given back without an end or a preemption of their own."""
    request = event.subject
    record = state.live.get(request)
    if record is not None:
        holdings.give_back(state, event, record, all_of=False)
        return
    if request in state.held_by_ended:
        held = state.held_by_ended[request]
        table = state.tables.get(request)
        if event.block_ids is not None and table is not None:
            holdings.drop_ids(state, request, event.block_ids)
        blocks = event.blocks
        if blocks is None and event.block_ids is not None and held is not None:
            blocks = max(0, held - len(event.block_ids))
        if blocks is None:
            blocks = 0
        holdings.account(state, held, blocks)
        state.held_by_ended[request] = blocks
        if blocks == 0:
            del state.held_by_ended[request]
            state.untold.pop(request, None)
            if event.block_ids is None:
                holdings.drop_ids(state, request, None)
    elif event.block_ids is not None and request in state.tables:
        holdings.drop_ids(state, request, event.block_ids)


EFFECTS: Final[dict[str, Effect]] = {
    "live": live,
    "arrive": arrive,
    "cancel": cancel,
    "abort": abort,
    "preempt": preempt,
    "admit": admit,
    "resume": resume,
    "reject": reject,
    "park": park,
    "ready": ready,
    "skip": skip,
    "schedule": schedule,
    "dispatch": ledgers.dispatch,
    "complete": ledgers.complete,
    "output": output,
    "finish": finish,
    "deliver": ledgers.deliver,
    "release": release,
    "take": ledgers.take,
    "give": ledgers.give,
    "transfer_begin": ledgers.transfer_begin,
    "transfer_end": ledgers.transfer_end,
    "step": close_step,
}
"""What each event kind does to the books."""
