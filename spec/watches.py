"""What a property may ask to be kept in a frame, beyond what the future needs.

ran        how many iterations a request has run
fruitless  how often it was preempted since its last output
service    what the first of two tenants was served beyond the second since both wait
"""

from collections.abc import Sequence
from typing import Final

from batchspec.spec.frame import Frame, Job
from batchspec.spec.model import WAITING
from batchspec.spec.naming import Rows
from batchspec.spec.profile import Profile

RAN: Final = "ran"
FRUITLESS: Final = "fruitless"
SERVICE: Final = "service"


def preemptions(after: Frame, rows: Rows, watches: frozenset[str]) -> Frame:
    """Preemptions without an output since the last one."""
    parts = after.parts
    for event in rows:
        if event.event == "preempt" and FRUITLESS in watches:
            place = int(event.subject)
            part = parts[place]
            parts = (*parts[:place], part._replace(fruitless=part.fruitless + 1), *parts[place + 1 :])
    return after._replace(parts=parts)


def iterations(frame: Frame, ran: set[int], emitted: set[int], watches: frozenset[str]) -> Frame:
    """Iterations so far; an output begins the count of fruitless preemptions anew."""
    parts = []
    for place, part in enumerate(frame.parts):
        if RAN in watches and place in ran:
            part = part._replace(ran=part.ran + 1)
        if place in emitted:
            part = part._replace(fruitless=0)
        parts.append(part)
    return frame._replace(parts=tuple(parts))


def service(before: Frame, after: Frame, rows: Rows, jobs: Sequence[Job], profile: Profile) -> Frame:
    """What each of two tenants is served while both have requests waiting: VTC, theorem 4.4."""
    fairness = profile.value
    tenants = sorted({job.tenant or "" for job in jobs})[:2]
    waiting = {jobs[part.job].tenant or "" for part in after.parts if part.state == WAITING}
    if len(waiting) < 2:
        return after._replace(service=None)
    if before.service is None:
        return after._replace(service=(0, 0, 0))
    gained = dict.fromkeys(tenants, 0.0)
    for place, part in enumerate(before.parts):
        job = jobs[part.job]
        known = job.prompt + part.outputs
        if rows[-1].event == "step" and part.tokens >= 0 and part.computed >= known:
            gained[job.tenant or ""] += fairness("fairness.w_q")
        if rows[0].event == "admit" and rows[0].request == place:
            gained[job.tenant or ""] += fairness("fairness.w_p") * job.prompt
    gap, low, high = before.service
    gap += gained[tenants[0]] - gained[tenants[1]]
    return after._replace(service=(gap, min(low, gap), max(high, gap)))
