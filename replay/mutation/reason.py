"""The reason why a fault went unseen: a verdict, the argument for it, and words."""

from typing import Final, NamedTuple

LEGAL: Final = "legal"
UNOBSERVABLE: Final = "unobservable"
GAP: Final = "gap"


class Reason(NamedTuple):
    """Why a fault went unseen: `legal`, `unobservable` or `gap`; by which argument; in words."""

    verdict: str
    argument: str
    words: str
