"""Who holds which blocks: the books of counts and ids, and what returns them. In place, for actions.py."""

from batchspec.spec.events import Event, RequestId
from batchspec.spec.model import Request, State


def account(state: State, old: int | None, new: int | None) -> None:
    """Keep the sum of held blocks, and the number of holders whose count is unknown."""
    if old is None:
        state.unknown_blocks -= 1
    else:
        state.held -= old
    if new is None:
        state.unknown_blocks += 1
    else:
        state.held += new


def grant(state: State, event: Event, record: Request) -> None:
    """Blocks after admit, schedule, resume, park, live; ids are those granted, in table order."""
    ids = event.block_ids
    if ids:
        table = state.tables.setdefault(record.id, [])
        taken = 0
        if event.event in ("admit", "resume", "live", "park"):
            taken = 1 << 62  # where the row does not say what it takes over, a block with an owner is shared
            if event.event != "live" and event.cached is not None and state.block_size:
                taken = event.cached // state.block_size
        for block in ids:
            shared = state.shares and len(table) < taken
            owners = state.owners.get(block, ())
            if owners and not shared:
                for former in owners:
                    lose(state, former, block)
                owners = ()
            state.owners[block] = (*owners, record.id)
            table.append(block)
    blocks = event.blocks
    note_untold(state, event, record)
    if blocks is None and record.id not in state.untold:
        if state.has_ids:
            blocks = len([block for block in state.tables.get(record.id, ()) if block is not None])
        elif event.event in ("park", "live", "admit", "resume") and not ids:
            blocks = None if state.has_blocks else 0
    account(state, record.blocks, blocks)
    state.live[record.id] = record.moved(record.computed, record.outputs, record.pending, blocks)


def note_untold(state: State, event: Event, record: Request) -> None:
    """A row whose count grows and that names no ids: from here on nobody knows which blocks it holds."""
    if not state.has_ids or event.block_ids is not None or event.blocks is None:
        return
    if record.blocks is None or event.blocks > record.blocks:
        state.untold[record.id] = None


def give_back(state: State, event: Event, record: Request, all_of: bool) -> None:
    """Blocks after preempt, release, finish, abort, reject. A null count is 0 where `all_of` is."""
    ids = event.block_ids
    blocks = event.blocks
    if ids is not None:
        drop_ids(state, record.id, ids)
        if blocks is None:
            left = state.tables.get(record.id)
            if left is not None:
                blocks = len([block for block in left if block is not None])
    elif all_of and not blocks:
        drop_ids(state, record.id, None)
    if blocks is None:
        blocks = 0 if all_of else record.blocks
        if event.event == "release" and ids is None:
            blocks = None
    account(state, record.blocks, blocks)
    state.live[record.id] = record.moved(record.computed, record.outputs, record.pending, blocks)


def drop_ids(state: State, request: RequestId, ids: tuple[int, ...] | None) -> None:
    """Take blocks out of a request's table: the named ones, or all."""
    table = state.tables.get(request)
    if table is None:
        return
    for block in list(table) if ids is None else ids:
        if block is None or block not in table:
            continue
        # A hole keeps the later positions where they are: table index = position // block size.
        table[len(table) - 1 - table[::-1].index(block)] = None
        owners = state.owners.get(block, ())
        rest = tuple(owner for owner in owners if owner != request)
        if rest:
            state.owners[block] = rest
        else:
            state.owners.pop(block, None)
    while table and table[-1] is None:
        table.pop()
    if not table:
        del state.tables[request]


def lose(state: State, request: RequestId, block: int) -> None:
    """A block goes to its newest taker: the former holder holds it no more."""
    table = state.tables.get(request)
    if table is None or block not in table:
        return
    table[table.index(block)] = None
    record = state.live.get(request)
    if record is not None and record.blocks:
        account(state, record.blocks, record.blocks - 1)
        state.live[request] = record.moved(record.computed, record.outputs, record.pending, record.blocks - 1)
    elif state.held_by_ended.get(request):
        held = state.held_by_ended[request]
        if held:
            account(state, held, held - 1)
            state.held_by_ended[request] = held - 1


def set_apart(state: State, request: RequestId) -> None:
    """An id begins again while its former incarnation still holds blocks: the books keep both."""
    ghost = f"{request}\0{state.arrivals}"
    state.held_by_ended[ghost] = state.held_by_ended.pop(request)
    if request in state.untold:
        state.untold[ghost] = state.untold.pop(request)
    for block in state.tables.get(request, ()):
        if block is not None:
            owners = state.owners[block]
            state.owners[block] = tuple(ghost if owner == request else owner for owner in owners)
    if request in state.tables:
        state.tables[ghost] = state.tables.pop(request)
    renamed = [(free_from, ghost if held == request else held) for free_from, held in state.lagged]
    state.lagged.clear()
    state.lagged.extend(renamed)


def drop_ended(state: State, request: RequestId) -> None:
    """The lag of an ended request has run out: whatever it still held is free."""
    if request in state.held_by_ended:
        account(state, state.held_by_ended.pop(request), 0)
        drop_ids(state, request, None)
        state.untold.pop(request, None)


def count_positions(state: State, computed: int | None, sign: int) -> None:
    """Keep the sum of ceil(c / b) over running requests, for traces without block counts."""
    if state.has_blocks or state.block_size is None:
        return
    if computed is None:
        state.unknown_positions += sign
    else:
        state.positions += sign * -(-computed // state.block_size)


def count_swapped(state: State, record: Request, sign: int) -> None:
    """Keep the sum of ceil(c / b) over requests on the host."""
    if record.computed is not None and state.block_size is not None:
        state.swapped_blocks += sign * -(-record.computed // state.block_size)
