"""The event loop's side of all lanes of one port."""

import asyncio
import os
import socket
import sys
import threading
from collections.abc import Callable
from ipaddress import ip_address
from itertools import count

from congreve.remoting.lanes.handle import Kind, LaneHandle
from congreve.remoting.lanes.lane import Lane
from congreve.remoting.lanes.transport import FrameProtocol, LaneTransport

CutLog = Callable[[FrameProtocol, Kind, bytes, int], None]
CallHandler = Callable[[FrameProtocol, Kind, bytes, int], None]
SinkEntryHandler = Callable[[FrameProtocol | None, int, bytes, int], None]


class Lanes:
    """Runs lanes, and passes their mailbox entries to the protocols of their connections.

    `name` begins the names of their threads.
    `accept(listener)` returns the protocol of a new connection, None to refuse the connection; the
    argument is the place of the listening socket. `cut(protocol, kind, data, number)` is called
    when a lane closes a faulty connection (Kind), `decrypt(encrypted, plain, peer)` with both
    sockets of a connection that the loop has to decrypt, and its peer's address.
    Entries of the lanes' sinks go to `sink_entry(protocol, kind, data, number)`, with the protocol
    of the connection that the entry is about. Calls of HTTP/2 go to `call(protocol, kind, data,
    stream)`.
    """

    def __init__(
        self,
        lanes: list[Lane],
        *,
        accept: Callable[[int], FrameProtocol | None],
        cut: CutLog,
        decrypt: Callable[[int, int, str], None],
        name: str,
        sink_entry: SinkEntryHandler | None = None,
        call: CallHandler | None = None,
    ) -> None:
        self.lanes = lanes
        self._accept = accept
        self._cut = cut
        self._decrypt = decrypt
        self._name = name
        self._sink_entry = sink_entry
        self._call = call
        self._transports: dict[tuple[LaneHandle, int], tuple[LaneTransport, FrameProtocol]] = {}
        self._threads: list[threading.Thread] = []
        self._fences = count()
        self._adopted = count()
        self._fenced: dict[int, tuple[set[LaneHandle], asyncio.Future[None]]] = {}

    def start(self) -> None:
        """Start the threads; the running loop gets their entries."""
        loop = asyncio.get_running_loop()
        for number, lane in enumerate(self.lanes):
            loop.add_reader(lane.handle.event_fd, self._read, lane.handle)
            thread = threading.Thread(target=lane.run, name=f"{self._name}-{number}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop_listening(self) -> None:
        """Ask the lanes to accept no more connections."""
        for lane in self.lanes:
            lane.handle.stop_listening()

    def adopt(self, descriptor: int, peer: tuple[str, int], listener: int) -> None:
        """Serve an open socket of frames as a connection of this peer to a listener.

        It is closed by its lane.
        """
        lane = self.lanes[next(self._adopted) % len(self.lanes)]
        address = ip_address(peer[0]).packed
        lane.handle.adopt(descriptor, address + peer[1].to_bytes(2, "big"), listener)

    def stop(self) -> None:
        """Stop the threads, and close the remaining connections."""
        loop = asyncio.get_running_loop()
        for lane in self.lanes:
            lane.handle.stop()
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        for lane in self.lanes:
            while self._read(lane.handle):
                pass
            loop.remove_reader(lane.handle.event_fd)
        left, self._transports = self._transports, {}
        for transport, _ in left.values():
            transport.lost(None)

    async def wait_for_fence(self) -> None:
        """Wait until no lane uses entries of shared tables that it looked up before this call."""
        number = next(self._fences)
        done = asyncio.get_running_loop().create_future()
        self._fenced[number] = {lane.handle for lane in self.lanes}, done
        for lane in self.lanes:
            lane.handle.fence(number)
        await done

    def _passed(self, lane: LaneHandle, number: int) -> None:
        waiting, done = self._fenced[number]
        waiting.discard(lane)
        if not waiting:
            del self._fenced[number]
            if not done.done():
                done.set_result(None)

    def _read(self, lane: LaneHandle) -> bool:
        entries = lane.take_entries()
        for kind, number, data, value in entries:
            if kind == Kind.OPENED:
                self._opened(lane, number, data, value)
            elif kind == Kind.FENCED:
                self._passed(lane, value)
            elif kind == Kind.HANDED_OVER:
                self._handed_over(lane, number, data, value)
            elif kind >= Kind.OF_SINK:
                if self._sink_entry is not None:
                    _, protocol = self._transports.get((lane, number), (None, None))
                    self._sink_entry(protocol, kind, data, value)
            elif found := self._transports.get((lane, number)):
                self._tell(lane, number, found, kind, data, value)
        return bool(entries)

    def _opened(self, lane: LaneHandle, number: int, address: bytes, value: int) -> None:
        listener, port = divmod(value, 1 << 16)
        transport = LaneTransport(lane, number, (str(ip_address(address)), port), listener)
        protocol = self._accept(listener)
        if protocol is None:
            transport.abort()
            return
        self._transports[lane, number] = transport, protocol
        transport.connect(protocol)

    def _handed_over(self, lane: LaneHandle, number: int, data: bytes, encrypted: int) -> None:
        plain = int.from_bytes(data, sys.byteorder)
        transport, _ = self._transports.get((lane, number), (None, None))
        if transport is None:  # this side has refused the connection meanwhile
            os.close(encrypted)
            os.close(plain)
        else:
            self._decrypt(encrypted, plain, transport.peer_name)

    def _tell(
        self,
        lane: LaneHandle,
        number: int,
        found: tuple[LaneTransport, FrameProtocol],
        kind: int,
        data: bytes,
        value: int,
    ) -> None:
        transport, protocol = found
        if kind == Kind.FRAME:
            transport.frame_arrived(data, value)
        elif kind == Kind.CLOSED:
            del self._transports[lane, number]
            transport.lost(OSError(value, os.strerror(value)) if value else None)
        elif kind in (Kind.WRITABLE, Kind.UNWRITABLE):
            transport.writable(kind == Kind.WRITABLE)
        elif kind in (Kind.CALL, Kind.CALL_CLOSED, Kind.CALL_ENDED, Kind.CALL_ANSWERED):
            transport.speaks_http2 = True
            if self._call is not None:
                self._call(protocol, Kind(kind), data, value)
        else:
            self._cut(protocol, Kind(kind), data, value)


def listening_sockets(host: str, port: int, backlog: int, count: int) -> list[socket.socket]:
    """A socket for each of `count` lanes to accept from, all at one port.

    The system spreads connections over them. From one socket for all, the lane that polls would
    accept those that come one after the other. Raises OSError if the address cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found: list[socket.socket] = []
    try:
        for _ in range(count):
            each = socket.create_server(
                (host, port), family=family, backlog=backlog, reuse_port=count > 1
            )
            each.setblocking(False)
            found.append(each)
            port = each.getsockname()[1]
    except OSError:
        for each in found:
            each.close()
        raise
    return found
