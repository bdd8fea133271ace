"""The HTTP server of the web console."""

import asyncio
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from congreve.console.web.options import Options
from congreve.console.web.serving.handshakes import HandshakeServer
from congreve.console.web.serving.site import Site

CONNECTIONS_MAX = 200
KEEP_ALIVE_S = 15
HEAD_S = 10
"""Seconds for a request's first line and headers, however many bytes come meanwhile."""
STOP_S = 3


class ConsoleProtocol(H11Protocol):
    """HTTP/1.1 with limits that uvicorn lacks.

    A head must come within HEAD_S. Beyond CONNECTIONS_MAX a new connection pushes out the one that
    waits for a request for the longest time.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._head_timer: asyncio.TimerHandle | None = None
        self.waits_since = self.loop.time()

    @property
    def is_busy(self) -> bool:
        """Whether a request is being served."""
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, and expect a request."""
        super().connection_made(transport)
        self._expect_head()
        if len(self.connections) < CONNECTIONS_MAX:
            return
        waiting = [
            each
            for each in self.connections
            if isinstance(each, ConsoleProtocol) and each is not self and not each.is_busy
        ]
        if waiting:
            oldest = min(waiting, key=lambda each: each.waits_since)
            self.connections.discard(oldest)
            oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take bytes; the first ones of a head begin its time."""
        super().data_received(data)
        if self.is_busy:
            self._expect_no_head()
        elif self._head_timer is None:
            self._expect_head()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self.waits_since = self.loop.time()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._expect_no_head()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_S, self._head_is_late)

    def _expect_no_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if not self.is_busy:
            self.transport.abort()


class ConsoleServer(Server):
    """A server that ends live pages when it stops, and reports when it listens."""

    def __init__(
        self,
        config: Config,
        site: Site,
        started: Callable[[], object],
        context: ssl.SSLContext | None,
    ) -> None:
        super().__init__(config)
        self._site = site
        self._started = started
        self._context = context
        self._handshakes: list[HandshakeServer] = []

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at SIGTERM and SIGINT; uvicorn's own handlers would let these signals end the
        process."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and report it."""
        if self._context is None:
            await super().startup(sockets)
        else:
            await super().startup([])
            for listening in sockets or []:
                server = HandshakeServer(listening, self._context, self._make_protocol)
                self._handshakes.append(server)
                server.start()
        if self.started:
            self._started()

    def _make_protocol(self) -> ConsoleProtocol:
        return ConsoleProtocol(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End live pages, then close."""
        self._site.stopping.set()
        for server in self._handshakes:
            server.stop()
        await super().shutdown(sockets)


async def serve(
    options: Options, certificate: Path | None, key: Path | None, say: Callable[[str], object]
) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises OSError if the port cannot be used, ssl.SSLError for a certificate that is none.
    """
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
    site = Site(options)
    config = Config(
        site.app,
        http=ConsoleProtocol,
        ws="none",
        loop="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=STOP_S,
    )
    listening = _listen(options)
    name = f"[{options.host}]" if ":" in options.host else options.host
    scheme = "https" if options.secure else "http"
    url = f"{scheme}://{name}:{listening.getsockname()[1]}"
    server = ConsoleServer(config, site, lambda: say(f"ready: console {url}"), context)
    with listening:
        await server.serve([listening])


def _listen(options: Options) -> socket.socket:
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    # With its protocol named, asyncio sets TCP_NODELAY: no page waits for an ACK.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((options.host, options.port))
    except OSError:
        listening.close()
        raise
    return listening
