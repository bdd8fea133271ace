"""Requests to any address over one connection each (RocketMQ: NettyRemotingClient)."""

import asyncio
import ssl as tls
from collections.abc import Callable, Mapping

from congreve.remoting.errors import (
    ConnectError,
    ConnectionLostError,
    RequestTimeoutError,
    reason_of,
)
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.blocking_client import BlockingClient
from congreve.remoting.transport.connection import Connection, ConnectionLimits
from congreve.remoting.transport.dispatcher import Dispatcher, Handler
from congreve.remoting.transport.peer_log import PeerLog
from congreve.remoting.transport.read_buffer import read_buffer


class RemotingClient:
    """Connects at the first request to an address, and again after a connection was lost.

    After a request that timed out it leaves a connection on which no answer has come since, which
    may be half open; RocketMQ's client leaves it in any case (clientCloseSocketIfTimeout).

    `handlers` serve requests of servers, ``{code: handler}``. All coroutines belong to one event
    loop. `timeout_s` limits the wait for an answer, `connect_timeout_s` that for a connection; with
    `ssl` all connections are encrypted. It calls `before_request` with each request before sending.
    (RocketMQ: NettyRemotingClient.)
    """

    def __init__(
        self,
        *,
        timeout_s: float = 3.0,
        connect_timeout_s: float = 3.0,
        handlers: Mapping[int, Handler] | None = None,
        limits: ConnectionLimits | None = None,
        on_close: Callable[[Connection], None] | None = None,
        ssl: tls.SSLContext | None = None,
        before_request: Callable[[RemotingCommand], None] | None = None,
    ) -> None:
        self.timeout_s = timeout_s
        self.connect_timeout_s = connect_timeout_s
        self._dispatcher = Dispatcher(handlers or {}, PeerLog())
        self._limits = limits or ConnectionLimits()
        self._on_close = on_close
        self._ssl = ssl
        self._before_request = before_request
        self._read_buffer = read_buffer()
        self._connections: dict[str, asyncio.Task[Connection]] = {}
        self._open: dict[str, Connection] = {}
        self._closed = False

    async def invoke(
        self, address: str, command: RemotingCommand, timeout_s: float | None = None
    ) -> RemotingCommand:
        """Send ``host:port`` a request and wait for the answer.

        Raises ConnectError, RequestTimeoutError, ConnectionLostError, TooManyRequestsError or
        FrameError.
        """
        connection = await self.connection(address)
        try:
            return await connection.invoke(
                command, self.timeout_s if timeout_s is None else timeout_s
            )
        except RequestTimeoutError:
            connection.leave_silent()
            raise

    async def call(
        self, address: str, command: RemotingCommand, deadline: float
    ) -> RemotingCommand:
        """invoke() with a deadline in the loop's time in place of a timeout."""
        connection = self._ready(address) or await self._writable(address, deadline)
        try:
            return await connection.call(command, deadline)
        except RequestTimeoutError:
            connection.leave_silent()
            raise

    async def oneway_by(self, address: str, command: RemotingCommand, deadline: float) -> None:
        """oneway() with a deadline, in the loop's time, for the connection."""
        connection = self._ready(address) or await self._writable(address, deadline)
        connection.oneway(command)

    async def oneway(self, address: str, command: RemotingCommand) -> None:
        """Send ``host:port`` a request without an answer. Raises ConnectError or FrameError."""
        (await self.connection(address)).oneway(command)

    def _ready(self, address: str) -> Connection | None:
        """The open and writable connection to an address, None without one."""
        connection = self._open.get(address)
        if connection is None or connection.closed or not connection.is_writable:
            return None
        return connection

    async def _writable(self, address: str, deadline: float) -> Connection:
        """Wait for a writable connection to an address; `deadline` is the loop's time.

        Raises ConnectError or RequestTimeoutError.
        """
        try:
            async with asyncio.timeout_at(deadline):
                connection = await self.connection(address)
        except TimeoutError:
            raise RequestTimeoutError(f"no connection to {address} in time") from None
        if not connection.is_writable:
            await connection.wait_writable(deadline - asyncio.get_running_loop().time())
        return connection

    async def connection(self, address: str) -> Connection:
        """The open connection to an address, or a new one. Raises ConnectError."""
        if self._closed:
            raise ConnectionLostError(f"no request to {address}: this client is closed")
        task = self._connections.get(address)
        if task is None or (task.done() and _is_over(task)):
            task = asyncio.create_task(self._connect(address))
            self._connections[address] = task
        return task.result() if task.done() else await asyncio.shield(task)

    def blocking(self) -> BlockingClient:
        """A client with these settings for threads without an event loop."""
        return BlockingClient(
            connect_timeout_s=self.connect_timeout_s,
            ssl=self._ssl,
            before_request=self._before_request,
        )

    async def close(self) -> None:
        """Close all connections; requests that wait for an answer raise ConnectionLostError."""
        self._closed = True
        tasks = list(self._connections.values())
        self._connections.clear()
        for task in tasks:
            task.cancel()
        made = await asyncio.gather(*tasks, return_exceptions=True)
        open_ones = [each for each in made if isinstance(each, Connection) and not each.closed]
        for connection in open_ones:
            connection.cancel()
            connection.close()
        await asyncio.gather(*(connection.finish() for connection in open_ones))

    async def _connect(self, address: str) -> Connection:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise ConnectError(f"{address!r} is not an address: write host:port")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.connect_timeout_s):
                _, connection = await loop.create_connection(
                    self._connection, host.strip("[]"), int(port), ssl=self._ssl
                )
        except TimeoutError:
            raise ConnectError(
                f"no connection to {address} within {self.connect_timeout_s:g} s"
            ) from None
        except (OSError, OverflowError, UnicodeError) as error:  # a label that is empty or too long
            reason = reason_of(error) or "the server closed it during the handshake of TLS"
            raise ConnectError(f"no connection to {address}: {reason}") from error
        self._open[address] = connection
        return connection

    def _connection(self) -> Connection:
        return Connection(
            self._dispatcher,
            self._read_buffer,
            limits=self._limits,
            on_close=self._on_close or _ignore,
            before_request=self._before_request,
        )


def _is_over(task: asyncio.Task[Connection]) -> bool:
    return task.cancelled() or task.exception() is not None or task.result().closed


def _ignore(connection: Connection) -> None:
    """Ignore that a connection of a client ended."""
