"""A path through the space as a trace: requests get names for life, and steps are counted."""

from collections.abc import Iterable, Iterator
from string import ascii_uppercase

from batchspec.spec.events import Event
from batchspec.spec.frame import Frame

Rows = tuple[Event, ...]


def name_of(arrival: int) -> str:
    """The name of the n-th arrival: A … Z, then A1 … Z1, and so on."""
    rounds, letter = divmod(arrival, len(ascii_uppercase))
    return ascii_uppercase[letter] + (str(rounds) if rounds else "")


def named(path: Iterable[Rows]) -> Iterator[Event]:
    """The rows of a path as a trace: steps are counted, and requests keep one name from arrival to end."""
    step, arrivals, live = 1, 0, []
    for rows in path:
        if rows[0].event == "arrive":
            live.append(name_of(arrivals))
            arrivals += 1
        ended = []
        for event in rows:
            request = None if event.request is None else live[int(event.request)]
            cause = None if event.cause is None else live[int(event.cause)]
            yield event._replace(step=step, request=request, cause=cause)
            if event.event in ("finish", "abort", "reject"):
                ended.append(int(event.subject))
            elif event.event == "step":
                step += 1
        live = [name for place, name in enumerate(live) if place not in ended]


def label_of(frame: Frame) -> str:
    """A state in words: each live request with its state, c and B."""
    parts = [f"{part.job}:{part.state} c={part.computed} B={part.blocks}" for part in frame.parts]
    return ", ".join(parts) or f"nobody, {frame.arrived} arrived"
