"""Error texts: values and paths shortened to one printable line."""

import difflib
import json
from collections.abc import Iterable
from typing import Any


def one_line(text: object, most: int = 200) -> str:
    """Any text as one printable line of at most `most` characters."""
    words = str(text).encode("utf-8", "replace").decode("utf-8")
    line = " ".join("".join(char if char.isprintable() else " " for char in words).split())
    return line if len(line) <= most else line[: most - 3] + "..."


def shown(value: Any, most: int = 40) -> str:
    """A value as it would stand in JSON, shortened."""
    if isinstance(value, str) and len(value) > most:
        value = value[:most] + "..."
    return one_line(json.dumps(value, default=str), most + 8)


def nearest(word: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)` for the nearest known word, else the list of them."""
    words = list(known)
    close = difflib.get_close_matches(word[:100], words, n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else f" (known: {', '.join(words)})"
