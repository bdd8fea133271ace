"""Listens, and serves requests by their code (RocketMQ: NettyRemotingServer)."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import cast

import msgspec

from congreve.base.forks import in_each_child
from congreve.remoting.errors import ConnectError, FrameError
from congreve.remoting.lanes.handle import Kind
from congreve.remoting.lanes.lane import Lane, LaneSink
from congreve.remoting.lanes.lanes import Lanes, SinkEntryHandler, listening_sockets
from congreve.remoting.lanes.transport import FrameProtocol
from congreve.remoting.loop.background import BackgroundTask
from congreve.remoting.tls.certificates import ServerCertificates
from congreve.remoting.transport.busy_poll import BusyPoll
from congreve.remoting.transport.connection import Connection, ConnectionLimits
from congreve.remoting.transport.dispatcher import Dispatcher, Handler
from congreve.remoting.transport.first_byte import FirstByteListener
from congreve.remoting.transport.frame_reader import CommandSink, FrameSink
from congreve.remoting.transport.guard import LOOK_S, ConnectionGuard

__all__ = ["Handler", "RemotingServer", "ServerLimits"]

logger = logging.getLogger(__name__)

IDLE_SCANS = 8
"""Scans in one idle time; a connection is closed after as many without a byte in either way."""


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one server (RocketMQ: NettyServerConfig)."""

    idle_timeout_s: float = 120.0
    backlog: int = 1024
    poll_s: float = 0.0
    """Seconds to poll after a small chunk before the loop may sleep (busy_poll.py)."""
    stop_s: float = 3.0
    """Seconds that stop() gives to handlers at work and to answers on their way."""
    connection: ConnectionLimits = ConnectionLimits()


class RemotingServer:
    """Serves `handlers`, ``{code: handler}``. With port 0 the system picks one: see `port`.

    `listeners` are further addresses to listen on, by name; a connection has the name of the
    listener that accepted it. A handler's exception is answered with code 1, a code without handler
    with code 3. A `sink` gets the frames before the handlers. The server calls `on_close` once for
    each connection that has ended, from either side. Servers of one event loop may share a
    `guard`.

    Without `lane_sinks` the event loop reads and writes. With them a lane for each serves the
    connections in a thread of its own, and the loop gets the frames that the sink does not take;
    `lane_entry(protocol, kind, data, number)` gets the sinks' mailbox entries. With `certificates`
    the first byte of a connection tells whether it is encrypted; where lanes cannot decrypt, they
    hand such connections over to the loop. (RocketMQ: NettyRemotingServer.)
    """

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        sink: FrameSink | None = None,
        limits: ServerLimits | None = None,
        guard: ConnectionGuard | None = None,
        on_close: Callable[[Connection], None] | None = None,
        certificates: ServerCertificates | None = None,
        lane_sinks: Sequence[LaneSink] = (),
        lane_entry: SinkEntryHandler | None = None,
        listeners: Mapping[str, tuple[str, int]] | None = None,
    ) -> None:
        self.host = host
        self.ports = {"": port}
        """The port of each listener, by name; that of the main one is empty."""
        self._addresses = {"": (host, port), **(listeners or {})}
        self._names = list(self._addresses)
        self.connections: set[Connection] = set()
        self._read_by_loop: set[Connection] = set()  # the lanes close theirs when they are idle
        self.guard = guard or ConnectionGuard()
        self.handlers = handlers
        self._dispatcher = Dispatcher(handlers, self.guard.peer_log)
        self._sink = sink or CommandSink()
        self._limits = limits or ServerLimits()
        self._on_close = on_close
        self.certificates = certificates
        self._first_byte: FirstByteListener | None = None
        self._following: BackgroundTask | None = None
        self._lane_sinks = lane_sinks
        self._lane_entry = lane_entry
        self._listening: ExitStack | None = None
        self._sockets: list[socket.socket] = []
        in_each_child(self._close_sockets)
        self._lanes: Lanes | None = None
        self._poll: BusyPoll | None = None
        self._scan: asyncio.TimerHandle | None = None
        self._look: asyncio.TimerHandle | None = None
        self._all_closed = asyncio.Event()

    @property
    def port(self) -> int:
        """The port of the main listener."""
        return self.ports[""]

    async def start(self) -> None:
        """Listen. Raises ConnectError if an address cannot be bound."""
        if self.certificates is not None:
            self._first_byte = FirstByteListener(self.certificates, accept=self._admit_to_loop)
        with ExitStack() as listening:
            if self._lane_sinks:
                self._start_lanes(listening)
            else:
                await self._start_loop(listening)
            self._listening = listening.pop_all()
        if self.certificates is not None:
            self._following = BackgroundTask(
                "following the certificate", self.certificates.keep_following, logger
            )
            self._following.start()
        self._scan_later()
        self._look_later()

    async def _start_loop(self, listening: ExitStack) -> None:
        loop = asyncio.get_running_loop()
        self._poll = BusyPoll(loop, self._limits.poll_s)
        if self._first_byte is not None:
            listening.callback(self._first_byte.close)
        for name in self._names:
            [each] = self._bind(name, 1)
            if self._first_byte is not None:
                self._first_byte.listen(each, name)
            else:
                server = await loop.create_server(
                    partial(self._connection, name), sock=each, backlog=self._limits.backlog
                )
                listening.callback(server.close)

    def _bind(self, name: str, count: int) -> list[socket.socket]:
        """Sockets that listen at the address of a listener. Raises ConnectError."""
        host, port = self._addresses[name]
        try:
            found = listening_sockets(host, port, self._limits.backlog, count)
        except OSError as error:
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
            raise ConnectError(f"cannot listen on {host}:{port}: {why}") from error
        self.ports[name] = found[0].getsockname()[1]
        self._sockets += found
        return found

    def _close_sockets(self) -> None:
        for each in self._sockets:
            each.close()

    def _start_lanes(self, listening: ExitStack) -> None:
        limits, shared = self._limits, self.guard.limits
        sockets: list[list[socket.socket]] = []
        for name in self._names:
            sockets.append(self._bind(name, len(self._lane_sinks)))
            for each in sockets[-1]:
                listening.enter_context(each)
        sessions = None if self.certificates is None else self.certificates.sessions
        lanes = [
            Lane(
                [each[number].fileno() for each in sockets],
                sink,
                poll_s=limits.poll_s,
                idle_s=limits.idle_timeout_s,
                first_frame_s=shared.first_frame_timeout_s,
                frame_timeout_s=shared.frame_timeout_s,
                frame_bytes_per_s=shared.frame_bytes_per_s,
                unfinished_max=shared.unfinished_bytes // len(self._lane_sinks),
                tls=sessions,
            )
            for number, sink in enumerate(self._lane_sinks)
        ]
        self.guard.follow(lanes)
        self._lanes = Lanes(
            lanes,
            accept=self._admit,
            cut=self._cut,
            hand_over=self._hand_over,
            sink_entry=self._lane_entry,
        )
        self._lanes.start()

    async def stop(self, before_close: Callable[[], None] | None = None) -> None:
        """Stop listening, wait a while for handlers and unsent answers, close all connections.

        It calls `before_close` when the handlers have ended: responses that it sends then still
        reach their peers.
        """
        if self._listening is None:
            return
        listening, self._listening = self._listening, None
        if self._lanes is None:
            listening.close()
        else:
            self._lanes.stop_listening()
            if self._first_byte is not None:
                self._first_byte.close()
        if self._following is not None:
            self._following.cancel()
        for timer in (self._scan, self._look):
            if timer is not None:
                timer.cancel()
        try:
            async with asyncio.timeout(self._limits.stop_s):
                await asyncio.gather(*(each.finish() for each in self.connections))
                if before_close is not None:
                    before_close()
                for connection in tuple(self.connections):
                    connection.close()
                await self._wait_closed()
        except TimeoutError:
            for connection in tuple(self.connections):
                connection.cancel()
                connection.abort()
            await self._wait_closed()
        if self._lanes is not None:
            self._lanes.stop()
            listening.close()

    async def lanes_passed(self) -> None:
        """Wait until no lane uses entries of shared tables that it looked up before this call."""
        if self._lanes is not None:
            await self._lanes.wait_for_fence()

    def _admit(self, listener: int) -> Connection | None:
        """The protocol of a new connection to the listener at this place; None: one too many."""
        return self._new_connection(self._names[listener]) if self.guard.admits() else None

    def _admit_to_loop(self, listener: str) -> Connection | None:
        if not self.guard.admits():
            return None
        connection = self._new_connection(listener)
        self._read_by_loop.add(connection)
        self.guard.expect_frame(connection)
        return connection

    def _hand_over(self, descriptor: int, listener: int) -> None:
        """Serve the encrypted connection of a lane that cannot decrypt it."""
        peer = socket.socket(fileno=descriptor)
        if self._first_byte is None:
            peer.close()
        else:
            self._first_byte.take_over(peer, self._names[listener])

    def _cut(self, protocol: FrameProtocol, kind: Kind, data: bytes, number: int) -> None:
        connection = cast(Connection, protocol)
        if kind == Kind.UNFRAMEABLE:
            connection.on_unframeable(FrameError(f"bytes that are not a frame: {data.hex()}"))
        elif kind == Kind.CUT_SILENT:
            self.guard.note_silent(connection)
        elif kind == Kind.CUT_HANDSHAKE and self.certificates is not None:
            self.certificates.note_late_handshake(connection)
        elif kind == Kind.CUT_PLAIN and self.certificates is not None:
            self.certificates.note_plain(connection)
        else:
            self.guard.log_cut(connection, late=kind == Kind.CUT_LATE, held=number)

    def _connection(self, listener: str) -> asyncio.BaseProtocol:
        return self._admit_to_loop(listener) or _Refusal()

    def _new_connection(self, listener: str) -> Connection:
        connection = Connection(
            self._dispatcher,
            self._sink,
            self.guard.read_buffer,
            limits=self._limits.connection,
            on_open=self.guard.admits_from,
            on_close=self._closed,
            poll=self._poll,
            note_kept=self.guard.note_kept,
        )
        connection.listener = listener
        self.connections.add(connection)
        self.guard.connections.add(connection)
        return connection

    def _closed(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self._read_by_loop.discard(connection)
        self.guard.closed(connection)
        if self._first_byte is not None:
            self._first_byte.give_up(connection)
        if not self.connections:
            self._all_closed.set()
        if self._on_close is not None:
            self._on_close(connection)

    async def _wait_closed(self) -> None:
        while self.connections:
            self._all_closed.clear()
            await self._all_closed.wait()

    def _scan_later(self) -> None:
        period = self._limits.idle_timeout_s / IDLE_SCANS
        self._scan = asyncio.get_running_loop().call_later(period, self._close_idle)

    def _look_later(self) -> None:
        self._look = asyncio.get_running_loop().call_later(LOOK_S, self._look_around)

    def _look_around(self) -> None:
        self.guard.enforce_limits()
        self._look_later()

    def _close_idle(self) -> None:
        """One scan of all connections, instead of a timer that each arriving chunk resets."""
        for connection in tuple(self._read_by_loop):
            if connection.active:
                connection.active = False
                connection.idle_scans = 0
                continue
            connection.idle_scans += 1
            if connection.idle_scans >= IDLE_SCANS:
                logger.info("%r: idle too long: closing it", connection)
                connection.abort()  # a peer that reads nothing must not delay the close
        self._scan_later()


class _Refusal(asyncio.Protocol):
    """The protocol of a connection over the limit: it closes the connection at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).abort()
