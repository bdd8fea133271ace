"""Connections with TLS: at most a number of handshakes at a time, each for a short while."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress

HANDSHAKES_MAX = 100
HANDSHAKE_S = 10.0
_PAUSE_S = 0.1  # after an accept() that failed, for want of descriptors


class HandshakeServer:
    """Accepts the connections of a socket, and makes a protocol for each after its handshake.

    Beyond HANDSHAKES_MAX a new handshake pushes out the oldest one. (asyncio has no limit of their
    number, and waits a minute for each.)
    """

    def __init__(
        self,
        listening: socket.socket,
        context: ssl.SSLContext,
        make_protocol: Callable[[], asyncio.Protocol],
    ) -> None:
        self._listening = listening
        self._context = context
        self._make_protocol = make_protocol
        self._accepting: asyncio.Task[None] | None = None
        self._handshakes: dict[asyncio.Task[None], None] = {}  # oldest first

    def start(self) -> None:
        """Accept connections, on the running event loop, until stop()."""
        self._listening.setblocking(False)
        self._listening.listen(socket.SOMAXCONN)
        self._accepting = asyncio.create_task(self._accept())

    def stop(self) -> None:
        """Accept no more, and end all handshakes; connections stay. Idempotent."""
        for task in (self._accepting, *self._handshakes):
            if task is not None:
                task.cancel()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(self._listening)
            except OSError:
                await asyncio.sleep(_PAUSE_S)
                continue
            task = loop.create_task(self._shake_hands(accepted))
            self._handshakes[task] = None
            task.add_done_callback(lambda done: self._handshakes.pop(done, None))
            if len(self._handshakes) > HANDSHAKES_MAX:
                oldest = next(iter(self._handshakes))
                del self._handshakes[oldest]
                oldest.cancel()

    async def _shake_hands(self, accepted: socket.socket) -> None:
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with suppress(OSError):  # of the peer: no TLS, or too late
                await asyncio.get_running_loop().connect_accepted_socket(
                    self._make_protocol,
                    accepted,
                    ssl=self._context,
                    ssl_handshake_timeout=HANDSHAKE_S,
                )
                return
            accepted.close()
        except asyncio.CancelledError:
            accepted.close()
            raise
