"""Names that stand for names: ids and tenants hashed with a key, the same name always to the same word.

Without the key nobody can tell a name from its hash, nor try names until one fits. BLAKE2b keyed, 64 bits:
two of a million names meet with a chance of 3 in a hundred million.
"""

from hashlib import blake2b
from typing import Final

from batchspec.spec.errors import TraceError

MAX_KEY: Final = 64
"""Bytes of a key that BLAKE2b takes."""

_REMEMBERED: Final = 1 << 16


class Pseudonyms:
    """Hashes with one key. Remembers what it has hashed lately, for requests are named over and over."""

    def __init__(self, key: str | bytes) -> None:
        """Raises `TraceError` for an empty key, and for one that is too long."""
        raw = key.encode() if isinstance(key, str) else key
        if not 1 <= len(raw) <= MAX_KEY:
            raise TraceError(f"a key has 1 to {MAX_KEY} bytes, not {len(raw)}")
        self._key = raw
        self._known: dict[str, str] = {}

    def word(self, name: str) -> str:
        """16 hexadecimal digits for a request id or a tenant."""
        found = self._known.get(name)
        if found is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            found = blake2b(name.encode(), digest_size=8, key=self._key).hexdigest()
            self._known[name] = found
        return found

    def number(self, name: int | bytes) -> int:
        """A non-negative number of 63 bits for an integer id or a content hash."""
        raw = name if isinstance(name, bytes) else str(name).encode()
        return int.from_bytes(blake2b(raw, digest_size=8, key=self._key).digest(), "little") >> 1
