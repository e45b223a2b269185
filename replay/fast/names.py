"""Names: the ids of requests as the whole numbers that the kernel knows them by, and back.

Whole numbers are their own names. Texts get the next serial number, each once in a batch, and are
forgotten when nothing in the books speaks of them any more, so what is kept does not grow with the trace.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from batchspec.spec.events import RequestId

_FORGET_AT: Final = 1 << 16


class Names:
    """The names of one trace. `texts`: its ids are texts."""

    def __init__(self, texts: bool) -> None:
        """No name was heard."""
        self.texts = texts
        self._serial: dict[str, int] = {}
        self._text: dict[int, str] = {}
        self._next = 0

    def put(self, request: RequestId) -> int:
        """The number of a request."""
        if not self.texts:
            return int(request)
        text = str(request)
        serial = self._serial.get(text)
        if serial is None:
            serial = self._next
            self._next += 1
            self._serial[text] = serial
            self._text[serial] = text
        return serial

    def name(self, key: int) -> RequestId:
        """The request of a number."""
        return self._text[key] if self.texts else key

    def mapped(self, words: Sequence[str], codes: Any) -> Any:
        """The numbers of a column of dictionary codes."""
        numbers = np.array([self.put(word) for word in words], np.int64)[codes]
        numbers.flags.writeable = False
        return numbers

    def forget(self, kept: Iterable[int], now: Iterable[str] = ()) -> None:
        """Once there are many: keep only these numbers and texts."""
        if len(self._text) < _FORGET_AT:
            return
        held = {key: self._text[key] for key in set(kept) | {self._serial[word] for word in now}}
        if len(held) * 2 < len(self._text):
            self._text = held
            self._serial = {text: key for key, text in held.items()}
