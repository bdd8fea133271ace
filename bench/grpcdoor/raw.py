"""Unary calls of gRPC as bytes, so that Python can make them faster than a broker answers."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator

from congreve.broker.grpc.protocol.calls import SERVICE

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS, _PING, _GOAWAY, _WINDOW = 0, 1, 4, 6, 7, 8
_ACK, _END_STREAM, _END_HEADERS = 1, 1, 4
_WINDOW_SIZE = 1 << 30
RECEIVED = 1 << 20
"""Bytes of one read."""


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """One frame of HTTP/2."""
    return struct.pack(">IBI", len(payload) << 8 | kind, flags, stream) + payload


def _literal(name: bytes, value: bytes) -> bytes:
    """A header that no table keeps; each part is shorter than 127 bytes."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


class RawCalls:
    """A connection with a number of calls open at any time (RFC 9113)."""

    def __init__(self, port: int, method: str, metadata: tuple[tuple[str, str], ...]) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        headers = (
            *((":method", "POST"), (":scheme", "http"), (":path", f"/{SERVICE}/{method}")),
            *((":authority", "bench"), ("content-type", "application/grpc"), ("te", "trailers")),
            *metadata,
        )
        block = b"".join(_literal(name.encode(), value.encode()) for name, value in headers)
        self._head = struct.pack(">IB", len(block) << 8 | _HEADERS, _END_HEADERS)
        self._block = block
        settings = struct.pack(">HI", 4, _WINDOW_SIZE)
        self._socket.sendall(
            _PREFACE
            + frame(_SETTINGS, 0, 0, settings)
            + frame(_WINDOW, 0, 0, struct.pack(">I", _WINDOW_SIZE - 65_535))
        )
        self._stream = 1
        self._left = b""

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def run(self, messages: Iterator[bytes], open_calls: int) -> list[float]:
        """Make a call for each message, `open_calls` at a time; returns the seconds of each."""
        begun: dict[int, float] = {}
        times: list[float] = []
        pending = self._begin(messages, open_calls, begun)
        while begun:
            if pending:
                self._socket.sendall(pending)
            ended = self._read()
            now = time.perf_counter()
            times += [now - begun.pop(stream) for stream in ended]
            pending = self._begin(messages, len(ended), begun)
        return times

    def _begin(self, messages: Iterator[bytes], count: int, begun: dict[int, float]) -> bytes:
        pieces = []
        now = time.perf_counter()
        for _ in range(count):
            message = next(messages, None)
            if message is None:
                break
            stream = struct.pack(">I", self._stream)
            size = len(message) + 5
            pieces += (self._head, stream, self._block)
            pieces += (struct.pack(">IB", size << 8 | _DATA, _END_STREAM), stream)
            pieces += (b"\0", struct.pack(">I", len(message)), message)
            begun[self._stream] = now
            self._stream += 2
        return b"".join(pieces)

    def _read(self) -> list[int]:
        """The calls that have ended, at least one."""
        ended: list[int] = []
        while not ended:
            data = self._socket.recv(RECEIVED)
            if not data:
                raise ConnectionError("the server has closed the connection")
            data, at = self._left + data, 0
            while len(data) - at >= 9:
                first, flags, stream = struct.unpack_from(">IBI", data, at)
                size, kind = first >> 8, first & 0xFF
                if len(data) - at < 9 + size:
                    break
                if kind in (_DATA, _HEADERS) and flags & _END_STREAM:
                    ended.append(stream)
                elif kind in (_SETTINGS, _PING) and not flags & _ACK:
                    payload = b"" if kind == _SETTINGS else data[at + 9 : at + 9 + size]
                    self._socket.sendall(frame(kind, _ACK, 0, payload))
                elif kind == _GOAWAY:
                    raise ConnectionError("the server sent GOAWAY")
                at += 9 + size
            self._left = data[at:]
        return ended


def message_maker(whole: bytes, marked: bytes) -> Callable[[bytes], bytes]:
    """Makes a message from one in which `marked` stands for a part of the same length."""
    before, after = whole.split(marked)
    return lambda part: b"".join((before, part, after))
