"""A lane's connection as an asyncio transport: connections work over lanes as over the loop."""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any, Protocol, cast

from congreve.remoting.lanes.handle import LaneHandle


class FrameProtocol(Protocol):
    """A protocol as in asyncio, which gets whole frames in place of bytes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""

    def pause_writing(self) -> None:
        """The peer does not read."""

    def resume_writing(self) -> None:
        """The peer reads again."""

    def take_frame(self, frame: bytes) -> None:
        """Take one whole frame."""


class LaneTransport(asyncio.Transport):
    """One connection of a lane, for the event loop's thread."""

    def __init__(
        self, lane: LaneHandle, number: int, peer: tuple[str, int], listener: int = 0
    ) -> None:
        super().__init__({"peername": peer})
        self.peer_name = f"{peer[0]}:{peer[1]}"
        self.listener = listener
        """The place of the listening socket that has accepted the connection."""
        self.speaks_http2 = False
        """Whether its frames are of calls; known with the first one."""
        self._lane = lane
        self._number = number
        self._protocol: FrameProtocol | None = None
        self._held: deque[tuple[bytes, int]] = deque()  # frames that the lane sent before it paused
        self._held_bytes = 0
        self._high_water = 0
        self._written = 0
        self._reading = True
        self._choked = False
        self._closing = False

    def connect(self, protocol: FrameProtocol) -> None:
        """Give the connection to its protocol."""
        self._protocol = protocol
        protocol.connection_made(self)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Give all that comes from now on to another protocol, a FrameProtocol."""
        self._protocol = cast(FrameProtocol, protocol)

    # --- mailbox entries of the lane

    def frame_arrived(self, frame: bytes, number: int) -> None:
        """Give a frame to the protocol; see Kind.FRAME for the number."""
        ordered = number & 1
        self.speaks_http2 |= bool(number & 2)
        if self._reading and not self._held:
            self._pass(frame, ordered)
        else:
            self._held.append((frame, ordered))
            self._held_bytes += len(frame)

    def writable(self, now: bool) -> None:
        """Notify the protocol whether the peer reads."""
        if self._protocol is None or self._choked is not now:
            return
        self._choked = not now
        if now:
            self._protocol.resume_writing()
        else:
            self._protocol.pause_writing()

    def lost(self, error: Exception | None) -> None:
        """The lane has closed the connection."""
        self._closing = True
        self._held.clear()
        self._held_bytes = 0
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.connection_lost(error)

    def _pass(self, frame: bytes, ordered: int) -> None:
        try:
            if self._protocol is not None:
                self._protocol.take_frame(frame)
        finally:
            if ordered:
                self._lane.handled(self._number)

    # --- asyncio.Transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """`held_bytes`: of frames that arrived before reading was paused; `http2`: whether the peer
        makes calls of HTTP/2.
        """
        if name == "http2":
            return self.speaks_http2
        if name == "held_bytes":
            return self._held_bytes
        return super().get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._lane.close_connection(self._number, False)

    def abort(self) -> None:
        self._closing = True
        self._lane.close_connection(self._number, True)

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._lane.set_reading(self._number, False)

    def resume_reading(self) -> None:
        if self._reading:
            return
        self._reading = True
        while self._held and self._reading:
            frame, ordered = self._held.popleft()
            self._held_bytes -= len(frame)
            self._pass(frame, ordered)
        if self._reading:
            self._lane.set_reading(self._number, True)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_water = high or 0

    def get_write_buffer_size(self) -> int:
        return self._lane.unsent(self._number, self._written)

    def write(self, data: "bytes | bytearray | memoryview[Any]") -> None:
        if self._closing:
            return
        self._lane.write(self._number, data)
        self._written += len(data)
        if not self._choked and self.get_write_buffer_size() > self._high_water:
            self.writable(False)
            self._lane.notify_writable(self._number)

    def reply(self, stream: int, data: bytes) -> None:
        """Answer a call of HTTP/2 (call.py)."""
        if not self._closing:
            self._lane.reply(self._number, stream, data)

    def tell_sink(self, kind: int, data: bytes) -> None:
        """Give the lane's sink an entry about this connection."""
        if not self._closing:
            self._lane.tell_sink(self._number, kind, data)

    def writelines(self, list_of_data: "Iterable[bytes | bytearray | memoryview[Any]]") -> None:
        self.write(b"".join(list_of_data))
