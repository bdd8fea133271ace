"""Requests of threads that read their answers themselves, without an event loop.

With an event loop on another thread, each request wakes two threads, which costs as much as the
request itself. Here the thread that sends a request also reads its answer.
"""

import select
import socket
import ssl as tls
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import TypeVar

from congreve.remoting.errors import (
    ConnectError,
    ConnectionLostError,
    FrameError,
    RequestTimeoutError,
    reason_of,
)
from congreve.remoting.messages.codes import CommandFlag
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.wire.frame import FRAME_MAX

T = TypeVar("T")

READ_SIZE = 64 * 1024


class BlockingClient:
    """Sends requests to any address over connections that one thread uses at a time.

    It does not answer requests of the peers. It calls `before_request` with each request before
    sending. The methods are coroutines that never wait for a loop, so that they can replace those
    of RemotingClient; any thread may run them. (RocketMQ: NettyRemotingClient.)
    """

    def __init__(
        self,
        *,
        connect_timeout_s: float = 3.0,
        ssl: tls.SSLContext | None = None,
        before_request: Callable[[RemotingCommand], None] | None = None,
    ) -> None:
        self._connect_timeout_s = connect_timeout_s
        self._ssl = ssl
        self._before_request = before_request
        self._idle: dict[str, list[_Connection]] = defaultdict(list)
        self._lock = threading.Lock()
        self._closed = False

    async def call(
        self, address: str, command: RemotingCommand, deadline: float
    ) -> RemotingCommand:
        """Send ``host:port`` a request; wait for the answer until time.monotonic() is `deadline`.

        Raises ConnectError, RequestTimeoutError, ConnectionLostError or FrameError.
        """
        command.flag = 0
        return self._exchange(address, command, deadline, _Connection.call)

    async def oneway_by(self, address: str, command: RemotingCommand, deadline: float) -> None:
        """Send ``host:port`` a request without an answer. Raises the same as call()."""
        command.flag = int(CommandFlag.ONEWAY)
        self._exchange(address, command, deadline, _Connection.send)

    def close(self) -> None:
        """Close idle connections now, the others as soon as their request has ended."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, defaultdict(list)
        for connections in idle.values():
            for connection in connections:
                connection.close()

    def _exchange(
        self,
        address: str,
        command: RemotingCommand,
        deadline: float,
        work: "Callable[[_Connection, RemotingCommand, float], T]",
    ) -> T:
        if self._before_request is not None:
            self._before_request(command)
        connection = self._take(address, deadline)
        try:
            result = work(connection, command, deadline)
        except BaseException:
            # A late answer must not be mistaken for that of another request.
            connection.close()
            raise
        with self._lock:
            if not self._closed:
                self._idle[address].append(connection)
                return result
        connection.close()
        return result

    def _take(self, address: str, deadline: float) -> "_Connection":
        while True:
            with self._lock:
                if self._closed:
                    raise ConnectionLostError(f"no request to {address}: this client is closed")
                idle = self._idle[address]
                connection = idle.pop() if idle else None
            if connection is None:
                return self._connect(address, deadline)
            if connection.is_quiet:
                return connection
            connection.close()

    def _connect(self, address: str, deadline: float) -> "_Connection":
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise ConnectError(f"{address!r} is not an address: write host:port")
        host = host.strip("[]")
        timeout_s = min(self._connect_timeout_s, _left(address, deadline))
        try:
            peer = socket.create_connection((host, int(port)), timeout_s)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._ssl is not None:
                peer = self._ssl.wrap_socket(peer, server_hostname=host)
        except (OSError, OverflowError, UnicodeError) as error:
            raise ConnectError(f"no connection to {address}: {reason_of(error)}") from error
        return _Connection(peer, address)


class _Connection:
    def __init__(self, peer: socket.socket, address: str) -> None:
        self._peer = peer
        self._address = address
        self._opaque = 0
        self._read = bytearray()
        self._events = select.poll()
        self._events.register(peer, select.POLLIN)

    @property
    def is_quiet(self) -> bool:
        """Whether the idle connection is usable: the peer has neither sent bytes nor closed it."""
        return not self._events.poll(0)

    def send(self, command: RemotingCommand, deadline: float) -> None:
        self._opaque = (self._opaque + 1) & 0x7FFFFFFF
        command.opaque = self._opaque
        frame = command.encode()
        try:
            self._peer.settimeout(_left(self._address, deadline))
            self._peer.sendall(frame)
        except TimeoutError as error:
            raise RequestTimeoutError(f"{self._address} took no bytes in time") from error
        except OSError as error:
            raise ConnectionLostError(f"{self._address}: {error}") from error

    def call(self, command: RemotingCommand, deadline: float) -> RemotingCommand:
        self.send(command, deadline)
        while True:
            answer = RemotingCommand.decode(self._frame(deadline))
            if answer.is_response and answer.opaque == command.opaque:
                return answer

    def close(self) -> None:
        self._peer.close()

    def _frame(self, deadline: float) -> bytes:
        """The next whole frame."""
        while len(self._read) < 4:
            self._fill(deadline)
        size = 4 + int.from_bytes(self._read[:4], "big")
        if size > FRAME_MAX:
            raise FrameError(f"{self._address}: frame of {size} bytes")
        while len(self._read) < size:
            self._fill(deadline)
        frame = bytes(self._read[:size])
        del self._read[:size]
        return frame

    def _fill(self, deadline: float) -> None:
        try:
            self._peer.settimeout(_left(self._address, deadline))
            data = self._peer.recv(READ_SIZE)
        except TimeoutError as error:
            raise RequestTimeoutError(f"{self._address}: no answer in time") from error
        except OSError as error:
            raise ConnectionLostError(f"{self._address}: {error}") from error
        if not data:
            raise ConnectionLostError(f"{self._address}: ended")
        self._read += data


def _left(address: str, deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise RequestTimeoutError(f"{address}: no answer in time")
    return left
