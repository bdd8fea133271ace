"""TLS in front of lanes that cannot decrypt: the event loop copies between peer and lane."""

import asyncio
import socket
from collections.abc import Callable
from typing import cast

from congreve.remoting.tls.certificates import ServerCertificates

HELD_MAX = 256 << 10
"""Bytes that wait for either end; beyond it the other one is not read."""


class TlsFront:
    """Encrypts connections of lanes where Python hides the functions of its OpenSSL.

    A lane has one end of a pair of sockets for each such connection, and closes those that are
    late, idle or too many: what this object holds ends with them.
    (RocketMQ: NettyRemotingServer.HandshakeHandler.)
    """

    def __init__(self, certificates: ServerCertificates) -> None:
        self._certificates = certificates
        self._open: set[asyncio.Task[None]] = set()

    def serve(self, encrypted: int, plain: int, peer: str) -> None:
        """Do the handshake on a connection, and copy its bytes; closes both descriptors."""
        ends = socket.socket(fileno=encrypted), socket.socket(fileno=plain)
        task = asyncio.get_running_loop().create_task(self._serve(*ends, peer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def stop(self, timeout_s: float) -> None:
        """Wait until what lanes have written is sent, then close all connections."""
        if self._open:
            await asyncio.wait(self._open, timeout=timeout_s)
        for task in self._open:
            task.cancel()

    async def _serve(self, encrypted: socket.socket, plain: socket.socket, peer: str) -> None:
        loop, certificates = asyncio.get_running_loop(), self._certificates
        inside, outside = _End(), _End()
        inside.other, outside.other = outside, inside
        try:
            await loop.connect_accepted_socket(lambda: inside, plain)
            handshake = asyncio.ensure_future(
                loop.connect_accepted_socket(
                    lambda: outside,
                    encrypted,
                    ssl=certificates.context,
                    ssl_handshake_timeout=certificates.settings.handshake_timeout_s,
                )
            )
            inside.give_up = handshake.cancel
            await handshake
            await outside.ended.wait()
        except OSError as error:
            # The loop's own timeout error, which has no errno.
            if isinstance(error, ConnectionAbortedError) and error.errno is None:
                certificates.note_late_handshake(peer)
            else:
                certificates.note_failed_handshake(peer, error)
        except asyncio.CancelledError:
            pass  # the lane has closed the connection, or the server stops
        finally:
            inside.close()
            outside.abort()
            encrypted.close()


class _End(asyncio.Protocol):
    """One end; what it receives goes to the other one, and it reads only while that takes it."""

    def __init__(self) -> None:
        self.other = self
        self.ended = asyncio.Event()
        self.give_up: Callable[[], object] = lambda: None
        """Called when it ends, for a handshake of the other end."""
        self._transport: asyncio.Transport | None = None

    def close(self) -> None:
        """Close when all is sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(HELD_MAX)
        if self.other.ended.is_set():
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.other._transport is not None:
            self.other._transport.write(data)

    def pause_writing(self) -> None:
        self.other._read(wanted=False)

    def resume_writing(self) -> None:
        self.other._read(wanted=True)

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()
        self.give_up()
        self.other.close()

    def _read(self, *, wanted: bool) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()
