"""Ext fields of a header as bytes (RocketMQ: RemotingSerializable, RocketMQSerializable)."""

import struct

import msgspec

_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")


def json_fields(fields: dict[str, str]) -> bytes:
    """Ext fields in the form of a JSON header, braces included."""
    return msgspec.json.encode(fields)


def binary_fields(fields: dict[str, str]) -> bytes:
    """Ext fields in the form of a binary header, without the length before them.

    Raises struct.error for a key or a value that is too long.
    """
    out = bytearray()
    for key, value in fields.items():
        name, text = key.encode(), value.encode()
        out += _SHORT.pack(len(name)) + name + _INT.pack(len(text)) + text
    return bytes(out)
