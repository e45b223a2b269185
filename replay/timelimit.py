"""A time limit for calls into somebody else's code, which may never come back."""

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import NoReturn, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class TookTooLong(BaseException):
    """Raised inside a call that does not come back. No `except Exception` of the callee stops it."""

    def __init__(self, seconds: float) -> None:
        """`seconds` is the limit that was passed."""
        super().__init__(f"not within {seconds:g} s")
        self.seconds = seconds


class TimeLimit:
    """Calls under a limit of wall-clock seconds each; None is no limit.

    It needs a signal of the main thread, so in any other thread, and where the system has no such
    signal, calls run without a limit. A call that spends its time in native code is stopped when
    that returns.
    """

    def __init__(self, seconds: float | None) -> None:
        """`limited` is false where no limit can be kept."""
        able = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
        self.seconds = seconds if able else None

    def __call__(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Make the call. Raises `TookTooLong` where it runs over its time."""
        if self.seconds is None:
            return call(*args, **kwargs)
        before = signal.signal(signal.SIGALRM, self._ring)
        signal.setitimer(signal.ITIMER_REAL, self.seconds)
        try:
            return call(*args, **kwargs)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def _ring(self, number: int, frame: FrameType | None) -> NoReturn:
        raise TookTooLong(self.seconds or 0)
