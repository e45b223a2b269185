"""The reference scheduler: one deterministic choice among what the rules allow, for every mode and policy.

job.py        one request, as the scheduler keeps it
settings.py   the claims of a profile, with defaults filled in and contradictions refused
pool.py       block ids: granted, returned, shared by content
tables.py     who holds which blocks, and what they contain
queue.py      who is next
board.py      the books, and one method for each action: it changes them and writes the row
joining.py    whether a waiting request may join now, and with what
decide.py     the decisions of one step
forming.py    how many requests start a static or dynamic batch
scheduler.py  the face: add, cancel, park, ready, step
"""

from batchspec.spec.reference.board import StepShape
from batchspec.spec.reference.scheduler import ReferenceScheduler

__all__ = ["ReferenceScheduler", "StepShape"]
