"""Requests of threads without an event loop, to peers that behave and peers that do not."""

import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from congreve.remoting.errors import (
    ConnectError,
    ConnectionLostError,
    FrameError,
    RequestTimeoutError,
)
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.blocking_client import BlockingClient


def result(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that never waits for a loop."""
    with pytest.raises(StopIteration) as done:
        coroutine.send(None)
    return done.value.value


def call(client: BlockingClient, address: str, body: bytes = b"", seconds: float = 5.0) -> Any:
    request = RemotingCommand(code=310, body=body)
    return result(client.call(address, request, time.monotonic() + seconds))


def receive(peer: socket.socket) -> RemotingCommand:
    head = peer.recv(4, socket.MSG_WAITALL)
    if len(head) < 4:
        raise ConnectionResetError
    body = peer.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)
    return RemotingCommand.decode(head + body)


def echo(peer: socket.socket) -> None:
    """Answers, in bytes that come one at a time."""
    while True:
        request = receive(peer)
        frame = request.reply(0, body=request.body).encode()
        peer.sendall(frame[:7])
        peer.sendall(frame[7:])


@contextmanager
def server(serve: Callable[[socket.socket], None]) -> Iterator[tuple[str, list[socket.socket]]]:
    """Its address, and the connections that were made to it."""
    listener = socket.create_server(("127.0.0.1", 0))
    peers: list[socket.socket] = []

    def run(peer: socket.socket) -> None:
        with suppress(OSError), peer:
            serve(peer)

    def accept() -> None:
        with suppress(OSError):
            while True:
                peer, _ = listener.accept()
                peers.append(peer)
                threading.Thread(target=run, args=(peer,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}", peers
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for peer in peers:
            with suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)


def test_threads_get_their_own_answers_and_share_idle_connections() -> None:
    client = BlockingClient()
    with server(echo) as (address, peers):

        def work(number: int) -> None:
            for turn in range(50):
                body = b"%d|%d" % (number, turn)
                answers.append(call(client, address, body).body == body)

        answers: list[bool] = []
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert answers == [True] * 200
        assert 1 <= len(peers) <= 4
        client.close()
        with pytest.raises(ConnectionLostError, match="closed"):
            client.call(address, RemotingCommand(code=1), time.monotonic() + 1).send(None)


def test_a_connection_that_ended_while_idle_is_not_used() -> None:
    """Brokers close connections that were idle for two minutes."""

    def once(peer: socket.socket) -> None:
        peer.sendall(receive(peer).reply(0).encode())
        peer.shutdown(socket.SHUT_RDWR)
        ended.set()

    client = BlockingClient()
    ended = threading.Event()
    with server(once) as (address, peers):
        for _ in range(3):
            assert call(client, address).code == 0
            assert ended.wait(5)
            ended.clear()
        assert len(peers) == 3
    client.close()


def test_a_late_answer_is_not_returned_for_the_next_request() -> None:
    def late(peer: socket.socket) -> None:
        request = receive(peer)
        if request.body == b"slow":
            go_on.wait(5)
        peer.sendall(request.reply(0, body=request.body).encode())
        echo(peer)

    client = BlockingClient()
    go_on = threading.Event()
    with server(late) as (address, _):
        begin = time.monotonic()
        with pytest.raises(RequestTimeoutError):
            call_until(client, address, b"slow", 0.1)
        assert time.monotonic() - begin < 5
        go_on.set()
        assert call(client, address, b"quick").body == b"quick"
    client.close()


def call_until(client: BlockingClient, address: str, body: bytes, seconds: float) -> None:
    request = RemotingCommand(code=310, body=body)
    client.call(address, request, time.monotonic() + seconds).send(None)


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (b"", ConnectionLostError),
        (b"\x00\x00", ConnectionLostError),
        (struct.pack(">I", 0x7FFFFFF0), FrameError),
        (struct.pack(">II", 8, 0x00FFFFFF) + b"xxxx", FrameError),
    ],
)
def test_an_invalid_answer_raises_our_own_error(sent: bytes, error: type[Exception]) -> None:
    def broken(peer: socket.socket) -> None:
        receive(peer)
        peer.sendall(sent)
        peer.shutdown(socket.SHUT_RDWR)

    client = BlockingClient()
    with server(broken) as (address, _), pytest.raises(error):
        call_until(client, address, b"", 5)
    client.close()


@pytest.mark.parametrize("address", ["nowhere", ":1", "127.0.0.1:x", "127.0.0.1:1", "h:99999999"])
def test_the_error_for_an_unreachable_address_names_it(address: str) -> None:
    with pytest.raises(ConnectError, match=re.escape(address)):
        call_until(BlockingClient(), address, b"", 5)


def test_a_oneway_request_does_not_wait_for_an_answer() -> None:
    def keep(peer: socket.socket) -> None:
        came.append(receive(peer))
        there.set()

    client = BlockingClient(before_request=lambda request: request.ext_fields.update(signed="yes"))
    came: list[RemotingCommand] = []
    there = threading.Event()
    with server(keep) as (address, _):
        request = RemotingCommand(code=310)
        assert result(client.oneway_by(address, request, time.monotonic() + 5)) is None
        assert there.wait(5)
    assert came[0].is_oneway
    assert came[0].ext_fields == {"signed": "yes"}
    client.close()


@pytest.mark.parametrize("address", ["a..b:1", "x" * 64 + ".example:1", "127.0.0.1:99999", "h"])
def test_an_address_that_is_none_is_a_connect_error(address: str) -> None:
    client = BlockingClient(connect_timeout_s=5)
    with pytest.raises(ConnectError):
        call(client, address)
