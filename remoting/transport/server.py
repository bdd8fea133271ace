"""Listens, and serves requests by their code (RocketMQ: NettyRemotingServer)."""

import asyncio
import logging
import os
import ssl as tls
from collections.abc import Callable, Mapping
from typing import cast

import msgspec

from congreve.remoting.errors import ConnectError
from congreve.remoting.transport.busy_poll import ShortPoll
from congreve.remoting.transport.connection import Connection, ConnectionLimits
from congreve.remoting.transport.dispatcher import Dispatcher, Handler
from congreve.remoting.transport.frame_reader import CommandSink, FrameSink
from congreve.remoting.transport.guard import LOOK_S, ConnectionGuard

__all__ = ["Handler", "RemotingServer", "ServerLimits"]

logger = logging.getLogger(__name__)

IDLE_SCANS = 8
"""Scans in one idle time; a connection is closed after as many without a byte in either way."""


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one server."""

    idle_timeout_s: float = 120.0
    backlog: int = 1024
    poll_s: float = 0.0
    """Seconds to poll after a small chunk before the loop may sleep (busy_poll.py)."""
    stop_s: float = 3.0
    """Seconds that stop() gives to handlers at work and to answers on their way."""
    connection: ConnectionLimits = ConnectionLimits()


class RemotingServer:
    """Serves `handlers`, ``{code: handler}``. With port 0 the system picks one: see `port`.

    A handler's exception is answered with code 1, a code without handler with code 3. A `sink`
    gets the frames before the handlers. The server calls `on_close` once for each connection that
    has ended, from either side. Servers of one event loop may share a `guard`.
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
        ssl: tls.SSLContext | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self.connections: set[Connection] = set()
        self.guard = guard or ConnectionGuard()
        self.handlers = handlers
        self._dispatcher = Dispatcher(handlers, self.guard.peer_log)
        self._sink = sink or CommandSink()
        self._limits = limits or ServerLimits()
        self._on_close = on_close
        self._ssl = ssl
        self._server: asyncio.Server | None = None
        self._poll: ShortPoll | None = None
        self._scan: asyncio.TimerHandle | None = None
        self._look: asyncio.TimerHandle | None = None
        self._all_closed = asyncio.Event()

    async def start(self) -> None:
        """Listen. Raises ConnectError where the address cannot be bound."""
        loop = asyncio.get_running_loop()
        self._poll = ShortPoll(loop, self._limits.poll_s)
        try:
            self._server = await loop.create_server(
                self._connection, self.host, self.port, backlog=self._limits.backlog, ssl=self._ssl
            )
        except OSError as error:
            # asyncio's text repeats the address; the system's error text is enough.
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
            raise ConnectError(f"cannot listen on {self.host}:{self.port}: {why}") from error
        self.port = self._server.sockets[0].getsockname()[1]
        self._scan_later()
        self._look_later()

    async def stop(self, before_close: Callable[[], None] | None = None) -> None:
        """Stop listening, let handlers end and answers leave for a while, close all connections.

        It calls `before_close` when the handlers have ended: responses that this sends still leave
        before their connections close.
        """
        if self._server is None:
            return
        self._server.close()
        self._server = None
        for timer in (self._scan, self._look):
            if timer is not None:
                timer.cancel()
        try:
            async with asyncio.timeout(self._limits.stop_s):
                await asyncio.gather(*(each.finish() for each in self.connections))
                if before_close is not None:
                    before_close()
                for connection in self.connections:
                    connection.close()
                await self._wait_closed()
        except TimeoutError:
            for connection in self.connections:
                connection.cancel()
                connection.abort()
            await self._wait_closed()

    def _connection(self) -> asyncio.BaseProtocol:
        if not self.guard.admits():
            return _Refusal()
        connection = Connection(
            self._dispatcher,
            self._sink,
            self.guard.read_buffer,
            limits=self._limits.connection,
            on_close=self._closed,
            poll=self._poll,
        )
        self.connections.add(connection)
        self.guard.connections.add(connection)
        return connection

    def _closed(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self.guard.connections.discard(connection)
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
        self.guard.look()
        self._look_later()

    def _close_idle(self) -> None:
        """One scan of all connections, instead of a timer that each arriving chunk resets."""
        for connection in self.connections:
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
