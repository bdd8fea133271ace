"""The HTTP server of the web console."""

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from uvicorn import Config, Server

from congreve.console.web.options import Options
from congreve.console.web.site import Site

CONNECTIONS_MAX = 200
KEEP_ALIVE_S = 15
STOP_S = 3


class ConsoleServer(Server):
    """A server that ends live pages when it stops, and reports when it listens."""

    def __init__(self, config: Config, site: Site, started: Callable[[], object]) -> None:
        super().__init__(config)
        self._site = site
        self._started = started

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
        await super().startup(sockets)
        if self.started:
            self._started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End live pages, then close."""
        self._site.stopping.set()
        await super().shutdown(sockets)


async def serve(
    options: Options, certificate: Path | None, key: Path | None, say: Callable[[str], object]
) -> None:
    """Serve until SIGTERM or SIGINT. Raises OSError if the port cannot be used."""
    site = Site(options)
    config = Config(
        site.app,
        http="h11",
        ws="none",
        loop="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=STOP_S,
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )
    listening = _listen(options)
    name = f"[{options.host}]" if ":" in options.host else options.host
    scheme = "https" if options.secure else "http"
    url = f"{scheme}://{name}:{listening.getsockname()[1]}"
    server = ConsoleServer(config, site, lambda: say(f"ready: console {url}"))
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
