"""Values in Thrift's compact protocol, as Parquet's metadata needs them; nothing reads here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

Value = tuple[int, bytes]
"""A type of the protocol, and the encoded value."""

TRUE, FALSE, I16, I32, I64, BINARY, LIST, STRUCT = 1, 2, 4, 5, 6, 8, 9, 12
SHORT_LIST = 15
"""From so many elements on, a list has its length in bytes of their own."""
STOP = b"\x00"


def boolean(value: bool) -> Value:
    """A field that is true or false: its type says which."""
    return TRUE if value else FALSE, b""


def i16(number: int) -> Value:
    """A signed number of 16 bits."""
    return I16, _signed(number)


def i32(number: int) -> Value:
    """A signed number of 32 bits."""
    return I32, _signed(number)


def i64(number: int) -> Value:
    """A signed number of 64 bits."""
    return I64, _signed(number)


def binary(data: bytes) -> Value:
    """Bytes behind their length."""
    return BINARY, _unsigned(len(data)) + data


def text(value: str) -> Value:
    """Text, as UTF-8."""
    return binary(value.encode())


def array(values: Iterable[Value]) -> Value:
    """A list of values of one type, at least one."""
    values = list(values)
    kind = values[0][0]
    count = len(values)
    short = count < SHORT_LIST
    head = bytes((count << 4 | kind,)) if short else bytes((0xF0 | kind,)) + _unsigned(count)
    return LIST, head + b"".join(data for _, data in values)


def struct(fields: Mapping[int, Value | None]) -> Value:
    """A struct of fields by id, in ascending order; fields that are None are left out."""
    parts: list[bytes] = []
    last = 0
    for number, value in fields.items():
        if value is not None:
            kind, data = value
            parts += (bytes(((number - last) << 4 | kind,)), data)
            last = number
    return STRUCT, b"".join((*parts, STOP))


def union(number: int, value: Value | None = None) -> Value:
    """A union with the field `number`, an empty struct if there is no value."""
    return struct({number: value or struct({})})


@lru_cache(1024)
def _signed(number: int) -> bytes:
    return _unsigned(number << 1 ^ number >> 63)


def _unsigned(number: int) -> bytes:
    if number < 0x80:
        return bytes((number,))
    parts = bytearray()
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)
