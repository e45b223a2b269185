"""The wire format of Protocol Buffers, as much of it as writing takes: fields as bytes.

A message is its fields one behind the other; a field is a key (number · 8 + wire type) and a value: a varint,
eight bytes, or a length and that many bytes. Source: the Protocol Buffers documentation, "Encoding".
"""

import struct
from typing import Final

_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2


def varint(number: int, value: int) -> bytes:
    """An integer, enum or bool. Negative ones as int64, in two's complement."""
    return _varint(number << 3 | _VARINT) + _varint(value & 0xFFFF_FFFF_FFFF_FFFF)


def fixed64(number: int, value: int) -> bytes:
    """An unsigned integer of eight bytes."""
    return _varint(number << 3 | _FIXED64) + struct.pack("<Q", value & 0xFFFF_FFFF_FFFF_FFFF)


def message(number: int, *fields: bytes) -> bytes:
    """A message inside a message."""
    body = b"".join(fields)
    return _varint(number << 3 | _BYTES) + _varint(len(body)) + body


def text(number: int, value: str) -> bytes:
    """A string. What is no text in UTF-8 (a lone surrogate) is replaced."""
    return message(number, value.encode("utf-8", "replace"))


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
