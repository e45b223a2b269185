"""The stopwatch: where the CPU time of a run went, for `--timing`."""

import time


class Stopwatch:
    """Seconds of the process's CPU time by the part of the work that they went into."""

    def __init__(self) -> None:
        """Nothing measured yet."""
        self.seconds: dict[str, float] = {}
        self.members = 0
        self._what = ""
        self._since = 0.0

    def part(self, what: str) -> "Stopwatch":
        """The part that the next `with` block measures."""
        self._what = what
        return self

    def __enter__(self) -> None:
        """The part begins."""
        self._since = time.process_time()

    def __exit__(self, *_: object) -> None:
        """The part is over."""
        self.add(self._what, time.process_time() - self._since)

    def add(self, what: str, seconds: float) -> None:
        """So many seconds more went into this."""
        self.seconds[what] = self.seconds.get(what, 0.0) + seconds

    def says(self, requests: int) -> str:
        """One line: the parts, and the rate."""
        total = sum(self.seconds.values())
        parts = ", ".join(f"{what} {seconds:.2f} s" for what, seconds in self.seconds.items())
        rate = f"{requests / total * 60:,.0f} requests and {self.members / total * 60:,.0f} members a minute"
        return f"CPU time: {parts}; {rate}" if total else f"CPU time: {parts}"
