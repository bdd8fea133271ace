"""Connections of the event loop whose first byte tells whether they are encrypted."""

import asyncio
import logging
import socket
from collections.abc import Callable

from congreve.remoting.tls.certificates import ServerCertificates
from congreve.remoting.transport.connection import Connection

logger = logging.getLogger(__name__)

TLS_HANDSHAKE = 0x16
"""The first byte of every connection with TLS."""
ACCEPTS_A_TURN = 64


class FirstByteListener:
    """Accepts connections of one listening socket, and serves those that lanes hand over.

    `accept` makes the connection's protocol, None to refuse it. A connection that sends nothing for
    `idle_s` is closed. (RocketMQ: NettyRemotingServer.HandshakeHandler.)
    """

    def __init__(
        self,
        certificates: ServerCertificates,
        *,
        accept: Callable[[], Connection | None],
        idle_s: float,
    ) -> None:
        self._certificates = certificates
        self._accept = accept
        self._idle_s = idle_s
        self._loop = asyncio.get_running_loop()
        self._listener: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def listen(self, listener: socket.socket) -> None:
        """Accept the connections of a socket, which this object closes."""
        self._listener = listener
        self._loop.add_reader(listener, self._accept_all, listener)

    def close(self) -> None:
        """Stop listening, and end the connections that are not open yet."""
        self._closed = True
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        for task in self._tasks:
            task.cancel()

    def take_over(self, peer: socket.socket) -> None:
        """Serve an accepted connection, whose first byte is there or will come."""
        connection = None if self._closed else self._accept()
        if connection is None:
            peer.close()
            return
        task = self._loop.create_task(self._open(peer, connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _accept_all(self, listener: socket.socket) -> None:
        for _ in range(ACCEPTS_A_TURN):
            try:
                peer, _ = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:  # no descriptor: the connection waits in the backlog
                logger.debug("cannot accept a connection: %s", error)
                return
            peer.setblocking(False)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.take_over(peer)

    async def _open(self, peer: socket.socket, connection: Connection) -> None:
        try:
            if await self._is_encrypted(peer):
                await self._encrypt(peer, connection)
            elif self._certificates.enforcing:
                self._certificates.note_plain(_name(peer))
                raise ConnectionAbortedError("not encrypted")
            else:
                await self._loop.connect_accepted_socket(lambda: connection, peer)
        except (OSError, TimeoutError, asyncio.CancelledError) as error:
            connection.connection_lost(None if isinstance(error, asyncio.CancelledError) else error)
            peer.close()

    async def _is_encrypted(self, peer: socket.socket) -> bool:
        """Wait for the first byte, and leave it where it is. Raises OSError, TimeoutError."""
        arrived = self._loop.create_future()
        self._loop.add_reader(peer, _set, arrived)
        try:
            async with asyncio.timeout(self._idle_s):
                await arrived
        finally:
            self._loop.remove_reader(peer)
        first = peer.recv(1, socket.MSG_PEEK)
        if not first:
            raise ConnectionResetError("closed before its first byte")
        return first[0] == TLS_HANDSHAKE

    async def _encrypt(self, peer: socket.socket, connection: Connection) -> None:
        name = _name(peer)
        try:
            await self._loop.connect_accepted_socket(
                lambda: connection,
                peer,
                ssl=self._certificates.context,
                ssl_handshake_timeout=self._certificates.settings.handshake_timeout_s,
            )
        except OSError as error:
            # The loop's own error, which comes without a number, when the time is over.
            if isinstance(error, ConnectionAbortedError) and error.errno is None:
                self._certificates.note_late_handshake(name)
            else:
                self._certificates.note_failed_handshake(name, error)
            raise


def _set(arrived: asyncio.Future[None]) -> None:
    if not arrived.done():
        arrived.set_result(None)


def _name(peer: socket.socket) -> str:
    try:
        host, port = peer.getpeername()[:2]
    except OSError:
        return "a peer that has gone"
    return f"{host}:{port}"
