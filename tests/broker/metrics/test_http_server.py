"""The HTTP server of the metrics port beside slow clients."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack

import pytest

from congreve.broker.metrics import http_server
from congreve.broker.metrics.http_server import REQUESTS_MAX, Answer, HttpServer


async def page(_: str) -> Answer:
    return Answer([b"fine"])


def ask(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as peer:
        peer.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        received = b""
        while data := peer.recv(1000):
            received += data
    return received


async def test_slow_clients_take_no_place_of_a_probe() -> None:
    server = HttpServer({"/healthz": page}, "127.0.0.1", 0)
    server.start()
    with ExitStack() as stack:
        for _ in range(3):
            for _ in range(2 * REQUESTS_MAX):
                slow = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
                slow.sendall(b"G")
            assert b"fine" in await asyncio.to_thread(ask, server.port)
    await server.stop()


async def test_a_client_has_one_time_for_all_bytes_of_its_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_server, "CLIENT_TIMEOUT_S", 0.2)
    server = HttpServer({"/healthz": page}, "127.0.0.1", 0)
    server.start()

    def drip() -> None:
        with socket.create_connection(("127.0.0.1", server.port), timeout=0.1) as slow:
            for _ in range(600):
                try:
                    slow.sendall(b"G")
                    assert slow.recv(1) == b""
                except TimeoutError:
                    continue
                except OSError:
                    pass
                return
        raise AssertionError("a client that sends a byte now and then is never cut")

    await asyncio.to_thread(drip)
    await server.stop()
