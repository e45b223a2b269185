"""Ledgers: what goes out and comes back beside KV blocks. In place, for actions.py.

Units of other resources to requests, transfers of KV, passes to the device.
"""

from batchspec.spec.events import Event
from batchspec.spec.model import State


def take(state: State, event: Event) -> None:
    """Units of another resource go out to a request."""
    if event.resource is None or event.units is None:
        state.ledgers_told = False
    if event.resource is not None:
        ledger = state.resources.setdefault(event.resource, {})
        request = event.subject
        ledger[request] = ledger.get(request, 0) + (event.units or 0)


def give(state: State, event: Event) -> None:
    """Units of another resource come back."""
    if event.resource is None or event.units is None:
        state.ledgers_told = False
    if event.resource is not None:
        ledger = state.resources.setdefault(event.resource, {})
        request = event.subject
        left = ledger.get(request, 0) - (event.units or 0)
        if left < 0 and state.lives:
            left = 0  # it may have held more when the trace began
        if left:
            ledger[request] = left
        else:
            ledger.pop(request, None)


def transfer_begin(state: State, event: Event) -> None:
    """A KV transfer over `block_ids` starts."""
    state.transfers.setdefault(event.subject, {})[event.reason or ""] = event.block_ids


def transfer_end(state: State, event: Event) -> None:
    """A KV transfer ends; `failed` ends whichever of the request's transfers its blocks name."""
    request = event.subject
    open_ones = state.transfers.get(request)
    if not open_ones:
        return
    reason = event.reason or ""
    if reason not in open_ones:
        same = [name for name, ids in open_ones.items() if ids == event.block_ids]
        reason = (same or list(open_ones))[0]
    del open_ones[reason]
    if not open_ones:
        del state.transfers[request]


def deliver(state: State, event: Event) -> None:
    """The response leaves: nothing of the books changes."""


def dispatch(state: State, event: Event) -> None:
    """The forward pass of a step starts on the device."""
    state.in_flight[event.pass_step] = None


def complete(state: State, event: Event) -> None:
    """The forward pass of a step ends on the device."""
    state.in_flight.pop(event.pass_step, None)
