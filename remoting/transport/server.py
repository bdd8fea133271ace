"""Listens, and serves requests by their code (RocketMQ: NettyRemotingServer)."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import cast

import msgspec

from congreve.base.forks import in_each_child
from congreve.remoting.errors import ConnectError, FrameError
from congreve.remoting.lanes.handle import Kind
from congreve.remoting.lanes.http2 import Http2Sessions
from congreve.remoting.lanes.lane import Lane, LaneSink
from congreve.remoting.lanes.lanes import CallHandler, Lanes, SinkEntryHandler, listening_sockets
from congreve.remoting.lanes.transport import FrameProtocol
from congreve.remoting.loop.background import BackgroundTask
from congreve.remoting.tls.certificates import ServerCertificates
from congreve.remoting.transport.connection import Connection, ConnectionLimits
from congreve.remoting.transport.dispatcher import Dispatcher, Handler
from congreve.remoting.transport.guard import LOOK_S, ConnectionGuard
from congreve.remoting.transport.tls_front import TlsFront
from congreve.remoting.wire.frame import FRAME_MAX

__all__ = ["ADOPTED", "Handler", "RemotingServer", "ServerLimits"]

ADOPTED = "adopted"
"""The listener of connections that another server has accepted."""

logger = logging.getLogger(__name__)


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one server (RocketMQ: NettyServerConfig)."""

    idle_timeout_s: float = 120.0
    backlog: int = 1024
    poll_s: float = 0.0
    """Seconds for which a lane polls after a small chunk, before it may sleep."""
    stop_s: float = 3.0
    """Seconds that stop() gives to handlers at work and to answers on their way."""
    connection: ConnectionLimits = ConnectionLimits()


class RemotingServer:
    """Serves `handlers`, ``{code: handler}``. With port 0 the system picks one: see `port`.

    `listeners` are further addresses to listen on, by name; a connection has the name of the
    listener that accepted it. Those in `handlers_of` have other handlers. A handler's exception is
    answered with code 1, a code without handler with code 3. The server calls `on_close` once for
    each connection that has ended, from either side. Servers of one event loop may share a `guard`.

    A lane for each of `lane_sinks` reads and writes in a thread of its own; the event loop gets the
    frames that the sink does not take. `lane_name` begins the threads' names.
    `lane_entry(protocol, kind, data, number)` gets the sinks' mailbox entries. With `certificates`
    the first byte of a connection tells whether it is encrypted. With `http2`, which makes the
    sessions of a lane, connections may speak HTTP/2, and `call(connection, kind, data, stream)`
    gets the calls that the loop serves. (RocketMQ: NettyRemotingServer.)
    """

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        limits: ServerLimits | None = None,
        guard: ConnectionGuard | None = None,
        on_close: Callable[[Connection], None] | None = None,
        certificates: ServerCertificates | None = None,
        lane_sinks: Sequence[LaneSink] | None = None,
        lane_entry: SinkEntryHandler | None = None,
        listeners: Mapping[str, tuple[str, int]] | None = None,
        handlers_of: Mapping[str, Mapping[int, Handler]] | None = None,
        lane_name: str = "lane",
        http2: Callable[[], Http2Sessions] | None = None,
        call: CallHandler | None = None,
    ) -> None:
        self.host = host
        self.ports = {"": port}
        """The port of each listener, by name; that of the main one is empty."""
        self._addresses = {"": (host, port), **(listeners or {})}
        self._names = [*self._addresses, ADOPTED]
        self.connections: set[Connection] = set()
        self.guard = guard or ConnectionGuard()
        self.handlers = handlers
        self._dispatchers = {
            name: Dispatcher((handlers_of or {}).get(name, handlers), self.guard.peer_log)
            for name in self._names
        }
        self._limits = limits or ServerLimits()
        self._on_close = on_close
        self.certificates = certificates
        self._front: TlsFront | None = None
        self._following: BackgroundTask | None = None
        self._lane_sinks = lane_sinks or [LaneSink()]
        self._lane_entry = lane_entry
        self._lane_name = lane_name
        self._http2 = http2
        self._call = call
        self._listening: ExitStack | None = None
        self._sockets: list[socket.socket] = []
        in_each_child(self._close_sockets)
        self._lanes: Lanes | None = None
        self._look: asyncio.TimerHandle | None = None
        self._holds = False
        self._all_closed = asyncio.Event()

    @property
    def port(self) -> int:
        """The port of the main listener."""
        return self.ports[""]

    async def start(self) -> None:
        """Listen. Raises ConnectError if an address cannot be bound."""
        with ExitStack() as listening:
            self._start_lanes(listening)
            self._listening = listening.pop_all()
        if self.certificates is not None:
            self._front = TlsFront(self.certificates)
            self._following = BackgroundTask(
                "following the certificate", self.certificates.keep_following, logger
            )
            self._following.start()
        self._look_later()

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
        for name in self._addresses:
            sockets.append(self._bind(name, len(self._lane_sinks)))
            for each in sockets[-1]:
                listening.enter_context(each)
        sessions = None if self.certificates is None else self.certificates.sessions
        # Some frames of any length fit, however many lanes there are.
        unfinished_max = max(
            shared.unfinished_bytes // len(self._lane_sinks),
            min(shared.unfinished_bytes, 2 * FRAME_MAX),
        )
        lanes = [
            Lane(
                [each[number].fileno() for each in sockets],
                sink,
                poll_s=limits.poll_s,
                idle_s=limits.idle_timeout_s,
                first_frame_s=shared.first_frame_timeout_s,
                frame_timeout_s=shared.frame_timeout_s,
                frame_bytes_per_s=shared.frame_bytes_per_s,
                unfinished_max=unfinished_max,
                tls=sessions,
                http2=None if self._http2 is None else self._http2(),
            )
            for number, sink in enumerate(self._lane_sinks)
        ]
        self.guard.follow(lanes)
        self._lanes = Lanes(
            lanes,
            accept=self._admit,
            cut=self._cut,
            decrypt=self._decrypt,
            name=self._lane_name,
            sink_entry=self._lane_entry,
            call=self._call,
        )
        self._lanes.start()

    async def stop(self, before_close: Callable[[], None] | None = None) -> None:
        """Stop listening, wait a while for handlers and unsent answers, close all connections.

        It calls `before_close` when the handlers have ended: responses that it sends then still
        reach their peers.
        """
        if self._listening is None or self._lanes is None:
            return
        listening, self._listening = self._listening, None
        self._lanes.stop_listening()
        if self._following is not None:
            self._following.cancel()
        if self._look is not None:
            self._look.cancel()
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
        self._lanes.stop()
        listening.close()
        if self._front is not None:
            await self._front.stop(self._limits.stop_s)

    def adopt(self, peer: socket.socket, client: tuple[str, int]) -> None:
        """Serve an open socket of plain frames as the connection of a client; it is the server's
        then.

        Its listener is ADOPTED, which has the handlers of the main one. Raises ConnectionError
        unless the server takes connections.
        """
        if self._listening is None or self._lanes is None or self._holds:
            raise ConnectionError("the server takes no connections")
        self._lanes.adopt(peer.detach(), client, self._names.index(ADOPTED))

    async def hold(self) -> None:
        """Accept no more connections, and take no more requests: they wait in their connections.

        Those that were taken are answered as usual.
        """
        if self._lanes is None:
            return
        self._lanes.stop_listening()
        self._holds = True
        for connection in self.connections:
            connection.hold()
        await self.lanes_passed()

    def leave_addresses(self) -> None:
        """Let another server listen at the same addresses; `on_close` is called no more."""
        self._on_close = None
        self._close_sockets()

    async def lanes_passed(self) -> None:
        """Wait until no lane uses entries of shared tables that it looked up before this call."""
        if self._lanes is not None:
            await self._lanes.wait_for_fence()

    def _admit(self, listener: int) -> Connection | None:
        """The protocol of a new connection to the listener at this place; None: one too many."""
        return self._new_connection(self._names[listener]) if self.guard.admits() else None

    def _decrypt(self, encrypted: int, plain: int, peer: str) -> None:
        """Decrypt a connection for a lane that cannot."""
        assert self._front is not None, "lanes look for TLS with certificates"
        self._front.serve(encrypted, plain, peer)

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

    def _new_connection(self, listener: str) -> Connection:
        connection = Connection(
            self._dispatchers[listener],
            limits=self._limits.connection,
            on_open=self.guard.admits_from,
            on_close=self._closed,
            note_kept=self.guard.note_kept,
        )
        connection.listener = listener
        if self._holds:
            connection.hold()
        self.connections.add(connection)
        self.guard.connections.add(connection)
        return connection

    def _closed(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self.guard.closed(connection)
        if not self.connections:
            self._all_closed.set()
        if self._on_close is not None:
            self._on_close(connection)

    async def _wait_closed(self) -> None:
        while self.connections:
            self._all_closed.clear()
            await self._all_closed.wait()

    def _look_later(self) -> None:
        self._look = asyncio.get_running_loop().call_later(LOOK_S, self._look_around)

    def _look_around(self) -> None:
        self._look_later()
        self.guard.enforce_limits()
