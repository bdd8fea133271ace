"""Connections of the event loop whose first byte shows whether they are encrypted."""

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import ExitStack

from congreve.remoting.tls.certificates import ServerCertificates
from congreve.remoting.tls.settings import TLS_HANDSHAKE
from congreve.remoting.transport.connection import Connection

logger = logging.getLogger(__name__)

ACCEPTS_A_TURN = 64


class FirstByteListener:
    """Accepts connections of listening sockets, and serves those that lanes hand over.

    `accept(listener)` makes the protocol of a connection to the listener with this name, None to
    refuse it. (RocketMQ: NettyRemotingServer.HandshakeHandler.)
    """

    def __init__(
        self,
        certificates: ServerCertificates,
        *,
        accept: Callable[[str], Connection | None],
    ) -> None:
        self._certificates = certificates
        self._accept = accept
        self._loop = asyncio.get_running_loop()
        self._sockets = ExitStack()
        self._opening: dict[Connection, asyncio.Task[None]] = {}
        self._closed = False

    def listen(self, listening: socket.socket, name: str) -> None:
        """Accept the connections of a socket, which this object closes."""
        self._sockets.enter_context(listening)
        self._loop.add_reader(listening, self._accept_all, listening, name)
        self._sockets.callback(self._loop.remove_reader, listening)

    def close(self) -> None:
        """Stop listening, and end the connections that are not open yet."""
        self._closed = True
        self._sockets.close()
        for task in list(self._opening.values()):
            task.cancel()

    def give_up(self, connection: Connection) -> None:
        """End a connection that is not open yet: its protocol was closed."""
        task = self._opening.pop(connection, None)
        if task is not None:
            task.cancel()

    def take_over(self, peer: socket.socket, listener: str) -> None:
        """Serve an accepted connection, whose first byte is there or will come."""
        connection = None if self._closed else self._accept(listener)
        if connection is None:
            peer.close()
            return
        task = self._loop.create_task(self._open(peer, connection))
        self._opening[connection] = task
        task.add_done_callback(lambda _: self._opening.pop(connection, None))

    def _accept_all(self, listening: socket.socket, listener: str) -> None:
        for _ in range(ACCEPTS_A_TURN):
            try:
                peer, _ = listening.accept()
            except BlockingIOError:
                return
            except OSError as error:  # no descriptor: the connection waits in the backlog
                logger.debug("cannot accept a connection: %s", error)
                return
            peer.setblocking(False)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.take_over(peer, listener)

    async def _open(self, peer: socket.socket, connection: Connection) -> None:
        try:
            if await self._is_encrypted(peer):
                await self._encrypt(peer, connection)
            elif self._certificates.enforcing:
                self._certificates.note_plain(_name(peer))
                raise ConnectionAbortedError("not encrypted")
            else:
                await self._loop.connect_accepted_socket(lambda: connection, peer)
        except (OSError, asyncio.CancelledError) as error:
            connection.connection_lost(None if isinstance(error, asyncio.CancelledError) else error)
            peer.close()

    async def _is_encrypted(self, peer: socket.socket) -> bool:
        """Wait for the first byte, and leave it where it is. Raises OSError."""
        arrived = self._loop.create_future()
        self._loop.add_reader(peer, _set, arrived)
        try:
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
            # The loop's own timeout error, which has no errno.
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
