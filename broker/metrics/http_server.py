"""A small HTTP server in threads of its own, for one event loop that has the answers."""

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import suppress
from enum import Enum, auto
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any

import msgspec

from congreve.base.forks import in_each_child
from congreve.broker.errors import BrokerError

logger = logging.getLogger(__name__)

REQUESTS_MAX = 8
"""Connections that are served at the same time; one more pushes out the oldest slow client."""
CLIENT_TIMEOUT_S = 5.0
"""The time for a whole request, and after the answer is there, for all of it."""
PUSH_OUT_S = 1.0
"""How long a new connection waits for the place of the one that it pushes out."""
ANSWER_TIMEOUT_S = 10.0


class Answer(msgspec.Struct):
    """The answer to a GET request."""

    body: list[bytes]
    content_type: str = "text/plain; charset=utf-8"
    status: HTTPStatus = HTTPStatus.OK


Page = Callable[[str], Coroutine[Any, Any, Answer]]
"""Gets the Accept header; runs on the event loop."""


class HttpServer:
    """Serves `pages` by their path to GET requests, with answers of the loop that starts it.

    A loop that does not answer within `answer_timeout_s` gives status 503, so that a probe sees
    when it hangs. With port 0 the system picks one: see `port`. (RocketMQ: MetricsExporterType.)
    """

    def __init__(
        self,
        pages: Mapping[str, Page],
        host: str,
        port: int,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> None:
        self.host = host
        self.port = port
        self._pages = pages
        self._answer_timeout_s = answer_timeout_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Listen, for answers of the running event loop. Raises BrokerError if it cannot."""
        self._loop = asyncio.get_running_loop()
        try:
            self._server = _Server(self.host, self.port, self.answer)
        except OSError as error:
            raise BrokerError(
                f"cannot listen on {self.host}:{self.port} (metricsPort): {error.strerror}"
            ) from error
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="metrics", daemon=True
        )
        self._thread.start()

    async def stop(self) -> None:
        """Stop listening; requests that are being served may still end. Idempotent."""
        server, self._server = self._server, None
        if server is not None:
            await asyncio.to_thread(server.shutdown)
            server.server_close()

    def answer(self, path: str, accept: str) -> Answer:
        """The answer to a GET request, for any thread but the loop's."""
        page = self._pages.get(path.partition("?")[0])
        if page is None:
            known = " ".join(self._pages)
            return Answer([f"use one of {known}\n".encode()], status=HTTPStatus.NOT_FOUND)
        assert self._loop is not None, "requests come after start()"
        asked: Future[Answer] = asyncio.run_coroutine_threadsafe(page(accept), self._loop)
        try:
            return asked.result(self._answer_timeout_s)
        except TimeoutError:
            asked.cancel()
            text = f"the event loop has not answered for {self._answer_timeout_s:g} s\n"
            return Answer([text.encode()], status=HTTPStatus.SERVICE_UNAVAILABLE)


class _Phase(Enum):
    READING = auto()
    ASKING = auto()
    SENDING = auto()


class _Served(msgspec.Struct):
    phase: _Phase
    since: float


class _Server(ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = socket.SOMAXCONN

    def __init__(self, host: str, port: int, answer: Callable[[str, str], Answer]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.answer = answer
        self._room = threading.BoundedSemaphore(REQUESTS_MAX)
        self._lock = threading.Lock()  # for _served
        self._served: dict[Any, _Served] = {}  # oldest first
        super().__init__((host, port), _Request)
        in_each_child(self.server_close)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self._push_out()
            if not self._room.acquire(timeout=PUSH_OUT_S):
                self.shutdown_request(request)
                return
        with self._lock:
            self._served[request] = _Served(_Phase.READING, time.monotonic())
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._served.pop(request, None)
            self._room.release()

    def enter(self, request: Any, phase: _Phase) -> None:
        """Note what the thread of a request does from now on."""
        with self._lock:
            if request in self._served:
                self._served[request] = _Served(phase, time.monotonic())

    def _push_out(self) -> None:
        """Cut the client that is slow for the longest time."""
        with self._lock:
            for phase in (_Phase.READING, _Phase.SENDING):
                slow = [each for each, served in self._served.items() if served.phase is phase]
                if slow:
                    self._cut(slow[0])
                    return

    def service_actions(self) -> None:
        """Cut clients that are too slow; called twice a second."""
        late = time.monotonic() - CLIENT_TIMEOUT_S
        with self._lock:
            for each, served in list(self._served.items()):
                if served.phase is not _Phase.ASKING and served.since < late:
                    self._cut(each)

    def _cut(self, request: Any) -> None:
        del self._served[request]
        with suppress(OSError):  # it has gone
            request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("a request for metrics from %s ended", client_address, exc_info=True)


class _Request(BaseHTTPRequestHandler):
    server: _Server
    timeout = CLIENT_TIMEOUT_S
    server_version = "congreve"
    sys_version = ""

    def do_GET(self) -> None:
        self.server.enter(self.request, _Phase.ASKING)
        answer = self.server.answer(self.path, self.headers.get("Accept", ""))
        self.server.enter(self.request, _Phase.SENDING)
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(sum(map(len, answer.body))))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        for chunk in answer.body:
            self.wfile.write(chunk)

    def log_message(self, format: str, *args: object) -> None:
        logger.debug("metrics: " + format, *args)
