"""A peer of HTTP/2 by the package h2, which shares no code with nghttp2."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    PingAckReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)

PATH = "/test.Service/Method"


def framed(message: bytes) -> bytes:
    """A message as gRPC sends it."""
    return b"\0" + len(message).to_bytes(4, "big") + message


class Answer:
    """What came back on one stream so far."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.data = bytearray()
        self.ended = False
        self.reset: int | None = None

    @property
    def messages(self) -> list[bytes]:
        """The whole messages."""
        found, at = [], 0
        while at < len(self.data):
            size = int.from_bytes(self.data[at + 1 : at + 5], "big")
            found.append(bytes(self.data[at + 5 : at + 5 + size]))
            at += 5 + size
        return found

    @property
    def status(self) -> str | None:
        """The status of gRPC."""
        return self.headers.get("grpc-status")


class Peer:
    """One connection; unless it `reads_all`, its windows stay shut."""

    def __init__(self, address: tuple[str, int], *, reads_all: bool = True) -> None:
        self.socket = socket.create_connection(address, timeout=20)
        self.h2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.reads_all = reads_all
        self.answers: dict[int, Answer] = {}
        self.pongs = 0
        self.gone: int | None = None
        """The error code of a GOAWAY."""
        self.last_stream: int | None = None
        self.h2.initiate_connection()
        self.flush()

    def flush(self) -> None:
        """Send what h2 has made."""
        self.socket.sendall(self.h2.data_to_send())

    def begin(self, **more: str) -> int:
        """Begin a call, and return its stream; underscores in names are hyphens."""
        stream = self.h2.get_next_available_stream_id()
        headers = {":method": "POST", ":path": PATH, ":scheme": "http", ":authority": "here"}
        headers |= {"content-type": "application/grpc", "te": "trailers"}
        headers |= {name.replace("_", "-"): value for name, value in more.items()}
        self.answers[stream] = Answer()
        self.h2.send_headers(stream, list(headers.items()))
        return stream

    def send(self, stream: int, data: bytes, *, last: bool = True) -> None:
        """Send bytes of a call, as the windows allow."""
        while data:
            room = min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size)
            if not room:
                self.flush()
                self.read()
                continue
            self.h2.send_data(stream, data[:room], end_stream=last and len(data) <= room)
            data = data[room:]
            if last and not data:
                break
        else:
            if last:
                self.h2.end_stream(stream)
        self.flush()

    def call(self, message: bytes, **more: str) -> int:
        """Send a whole call."""
        stream = self.begin(**more)
        self.send(stream, framed(message))
        return stream

    def read(self) -> bool:
        """Read once; False at the connection's end."""
        try:
            data = self.socket.recv(65536)
        except ConnectionResetError:
            return False
        for event in self.h2.receive_data(data) if data else ():
            self._note(event)
        self.flush_if_open()
        return bool(data)

    def flush_if_open(self) -> None:
        """Send acknowledgements, unless the other end has gone."""
        with suppress(OSError):
            self.flush()

    def wait(self, done: Callable[[], Any]) -> None:
        """Read until `done`."""
        while not done():
            assert self.read(), "the connection has ended"

    def answer(self, stream: int) -> Answer:
        """The whole answer of a call."""
        found = self.answers[stream]
        self.wait(lambda: found.ended or found.reset is not None)
        return found

    def _note(self, event: Event) -> None:
        if isinstance(event, ResponseReceived | TrailersReceived):
            self.answers[event.stream_id].headers |= dict(event.headers)
        elif isinstance(event, DataReceived):
            self.answers[event.stream_id].data += event.data
            if self.reads_all:
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, StreamEnded):
            self.answers[event.stream_id].ended = True
        elif isinstance(event, StreamReset):
            self.answers[event.stream_id].reset = int(event.error_code)
        elif isinstance(event, PingAckReceived):
            self.pongs += 1
        elif isinstance(event, ConnectionTerminated):
            self.gone, self.last_stream = int(event.error_code or 0), event.last_stream_id

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()
