"""TLS for code that reads and writes the descriptor of a plain socket."""

import asyncio
import select
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

from congreve.remoting.tls.errors import NotEncryptedError
from congreve.remoting.tls.settings import TLS_HANDSHAKE

HELD_MAX = 256 << 10
"""Bytes that a relay holds in each direction, at most."""


class RelayedSocket(socket.socket):
    """The plain end of a relay; it has the name of the encrypted connection's peer."""

    peer: tuple[str, int] = ("", 0)

    def getpeername(self) -> tuple[str, int]:
        """Address and port of the peer."""
        return self.peer


Opened: TypeAlias = RelayedSocket | OSError | NotEncryptedError
"""The plain end of a relay, or why there is none."""


class TlsRelay(threading.Thread):
    """Does a handshake, then copies between the encrypted connection and a plain socket.

    `opened` is called once, on this thread: with the plain end, whose user closes it, or with the
    error of the handshake, which may take `timeout_s`. When one end closes, so does the other.
    A server expects the first byte of a handshake (NotEncryptedError).
    """

    def __init__(
        self, tls: ssl.SSLSocket, timeout_s: float, opened: Callable[[Opened], object]
    ) -> None:
        super().__init__(name="tls-relay", daemon=True)
        self._tls = tls
        self._timeout_s = timeout_s
        self._opened = opened
        self.error: OSError | None = None
        """What ended the connection; None if one end was closed."""

    def cut(self) -> None:
        """End the connection, in its handshake or later; any thread may call it."""
        with suppress(OSError):  # it has gone
            socket.socket.shutdown(self._tls, socket.SHUT_RDWR)

    def run(self) -> None:
        """The thread: the handshake, then the bytes of both directions."""
        with self._tls:
            try:
                plain, own = self._shake_hands()
            except (OSError, NotEncryptedError) as error:
                self._report(error)
                return
            with own:
                self._report(plain)
                try:
                    self._copy(own)
                except OSError as error:
                    self.error = error

    def _report(self, result: Opened) -> None:
        try:
            self._opened(result)
        except RuntimeError:  # the event loop has ended meanwhile
            if isinstance(result, RelayedSocket):
                result.close()

    def _shake_hands(self) -> tuple[RelayedSocket, socket.socket]:
        tls = self._tls
        tls.settimeout(self._timeout_s)
        peer = tls.getpeername()[:2]  # it may have gone after its handshake
        if tls.server_side:
            first = socket.socket.recv(tls, 1, socket.MSG_PEEK)
            if first and first[0] != TLS_HANDSHAKE:
                raise NotEncryptedError("the connection is not encrypted")
        tls.do_handshake()
        tls.setblocking(False)
        own, other = socket.socketpair()
        own.setblocking(False)
        plain = RelayedSocket(fileno=other.detach())
        plain.setblocking(False)
        plain.peer = peer
        return plain, own

    def _copy(self, own: socket.socket) -> None:
        tls = self._tls
        inward, outward = _Flow(tls, own), _Flow(own, tls)
        while not outward.ended and not (inward.ended and inward.empty):
            if inward.move() | outward.move():
                continue
            waiting = select.poll()
            for end, events in (
                (tls, inward.source_events | outward.target_events),
                (own, outward.source_events | inward.target_events),
            ):
                if events:  # poll() would report an end that has closed at once, again and again
                    waiting.register(end, events)
            waiting.poll()


class _Flow:
    """Bytes that one end has sent and the other has not taken."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self._source, self._target = source, target
        self._memory = memoryview(bytearray(HELD_MAX))
        self._first = self._end = 0
        self._read_waits, self._write_waits = select.POLLIN, select.POLLOUT
        self.ended = False
        """Whether the source has closed."""

    @property
    def empty(self) -> bool:
        """Whether the target has all bytes."""
        return self._first == self._end

    @property
    def source_events(self) -> int:
        """What poll() has to report of the source before more can be read."""
        return 0 if self.ended or self._end == HELD_MAX else self._read_waits

    @property
    def target_events(self) -> int:
        """What poll() has to report of the target before more can be written."""
        return 0 if self.empty else self._write_waits

    def move(self) -> bool:
        """Read and write what is possible at once; whether anything was. Raises OSError."""
        moved = False
        while not self.ended and self._end < HELD_MAX and self._read():
            moved = True
        while not self.empty and self._write():
            moved = True
        if self.empty:
            self._first = self._end = 0
        return moved

    def _read(self) -> bool:
        try:
            count = self._source.recv_into(self._memory[self._end :])
        except (BlockingIOError, ssl.SSLWantReadError):
            self._read_waits = select.POLLIN
            return False
        except ssl.SSLWantWriteError:
            self._read_waits = select.POLLOUT
            return False
        self._end += count
        self.ended = count == 0
        return True

    def _write(self) -> bool:
        try:
            self._first += self._target.send(self._memory[self._first : self._end])
        except (BlockingIOError, ssl.SSLWantWriteError):
            self._write_waits = select.POLLOUT
            return False
        except ssl.SSLWantReadError:
            self._write_waits = select.POLLIN
            return False
        return True


async def connect_relay(
    context: ssl.SSLContext, peer: socket.socket, host: str, timeout_s: float
) -> tuple[TlsRelay, RelayedSocket]:
    """Encrypt a connection as its client: the relay and its plain end.

    It closes `peer` in any case but success. Raises OSError if the handshake fails.
    """
    loop = asyncio.get_running_loop()
    opened: asyncio.Future[RelayedSocket] = loop.create_future()

    def note(result: Opened) -> None:
        if not isinstance(result, RelayedSocket):
            if not opened.done():
                opened.set_exception(result)
        elif opened.done():
            result.close()
        else:
            opened.set_result(result)

    tls = context.wrap_socket(peer, server_hostname=host, do_handshake_on_connect=False)
    relay = TlsRelay(tls, timeout_s, lambda result: loop.call_soon_threadsafe(note, result))
    relay.start()
    try:
        return relay, await opened
    except asyncio.CancelledError:
        relay.cut()
        raise
