"""Calls of HTTP/2 as a lane gives them to the event loop, and the replies."""

import enum
import struct
from typing import NamedTuple

STATUS_TEXT_MAX = 1024
"""Bytes of a status's text."""

_LENGTH = struct.Struct(">I")
_FIELD = struct.Struct(">BH")
_REPLY = struct.Struct(">BBH")
_MESSAGE, _END, _BY_FRAME = 1, 2, 4
_PLAIN = frozenset(range(0x20, 0x7F)) - {ord("%")}


class CallField(enum.IntEnum):
    """What a client says about a call beside its message (http2.pxd)."""

    PATH = 0
    AUTHORITY = 1
    TIMEOUT = 2
    CLIENT_ID = 3
    LANGUAGE = 4
    CLIENT_VERSION = 5
    DATE_TIME = 6
    AUTHORIZATION = 7


class GrpcStatus(enum.IntEnum):
    """Numbers of gRPC, for what is wrong with a call itself."""

    OK = 0
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class CallMessage(NamedTuple):
    """A message of a call."""

    fields: dict[CallField, str]
    """What the client says about the call; empty for later messages."""
    message: bytes
    is_last: bool
    """Whether no further message follows, which CALL_CLOSED tells otherwise."""


def read_call(data: bytes) -> CallMessage:
    """The content of an entry CALL."""
    (size,) = _LENGTH.unpack_from(data)
    is_last, size = bool(size >> 24), size & 0xFFFFFF
    at, end = _LENGTH.size, _LENGTH.size + size
    found: dict[CallField, str] = {}
    while at < end:
        field, length = _FIELD.unpack_from(data, at)
        at += _FIELD.size
        found[CallField(field)] = data[at : at + length].decode("utf-8", "replace")
        at += length
    return CallMessage(found, data[end:], is_last)


def reply_message(message: bytes, *, last: bool) -> bytes:
    """A reply with a message; the `last` one ends the call with success."""
    return _REPLY.pack(_MESSAGE | (_END if last else 0), GrpcStatus.OK, 0) + message


def reply_end(status: int = GrpcStatus.OK, text: str = "") -> bytes:
    """A reply that ends the call with a status; the text is cut."""
    encoded = _percent(text)
    return _REPLY.pack(_END, status, len(encoded)) + encoded


def reply_by_frame(kind: int, note: bytes) -> bytes:
    """A frame whose opaque is the call's stream will answer it; kind and note are for the codec."""
    return _REPLY.pack(_BY_FRAME, kind, len(note)) + note


def _percent(text: str) -> bytes:
    out = bytearray()
    for byte in text.encode():
        piece = bytes((byte,)) if byte in _PLAIN else b"%%%02X" % byte
        if len(out) + len(piece) > STATUS_TEXT_MAX:
            break
        out += piece
    return bytes(out)
