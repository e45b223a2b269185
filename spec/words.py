"""Words: numbers as a finding says them."""

from typing import Final

_UNITS: Final = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"))


def count(number: int, noun: str) -> str:
    """`1 block`, `2 blocks`, `1,024 blocks`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def ordinal(number: int) -> str:
    """`1st`, `2nd`, `11th`."""
    ends = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{'th' if 10 <= number % 100 <= 20 else ends.get(number % 10, 'th')}"


def duration(nanoseconds: int) -> str:
    """`90 s`, `1.5 ms`, `250 ns`: the largest unit that it reaches, exactly."""
    for size, unit in _UNITS:
        if abs(nanoseconds) >= size:
            whole, rest = divmod(abs(nanoseconds), size)
            digits = str(rest).zfill(len(str(size)) - 1).rstrip("0")
            sign = "-" if nanoseconds < 0 else ""
            return f"{sign}{whole:,}{'.' if digits else ''}{digits} {unit}"
    return f"{nanoseconds} ns"


def short(text: str, most: int = 120) -> str:
    """The text, cut at `most` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"
