"""Both ends of a TLS relay, and connections that do not become encrypted."""

from __future__ import annotations

import queue
import random
import socket
import ssl
import threading
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from harness.certificates import Authority

from congreve.remoting.tls.certificates import client_context, server_context
from congreve.remoting.tls.errors import NotEncryptedError
from congreve.remoting.tls.relay import Opened, RelayedSocket, TlsRelay
from congreve.remoting.tls.settings import ClientAuth, ClientTls, ServerTls

WAIT_S = 60.0
SIZE = 3 << 20


class Contexts(NamedTuple):
    server: ssl.SSLContext
    client: ssl.SSLContext
    stranger: ssl.SSLContext  # without a certificate


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> Contexts:
    authority = Authority(tmp_path_factory.mktemp("authority"))
    trusted = str(authority.path)
    certificate, key = (str(path) for path in authority.issue("broker"))
    return Contexts(
        server_context(
            ServerTls(
                cert_path=certificate,
                key_path=key,
                client_auth=ClientAuth.REQUIRE,
                trust_cert_path=trusted,
            )
        ),
        client_context(ClientTls(trust_cert_path=trusted, cert_path=certificate, key_path=key)),
        client_context(ClientTls(trust_cert_path=trusted)),
    )


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
        with client, server:
            yield client, server


class Started:
    """A relay that runs, and what it reports."""

    def __init__(
        self,
        peer: socket.socket,
        context: ssl.SSLContext,
        *,
        server: bool,
        timeout_s: float = WAIT_S,
    ) -> None:
        self._results: queue.Queue[Opened] = queue.Queue()
        tls = context.wrap_socket(peer, server_side=server, do_handshake_on_connect=False)
        self.relay = TlsRelay(tls, timeout_s, self._results.put)
        self.relay.start()

    def opened(self) -> RelayedSocket:
        result = self._results.get(timeout=WAIT_S)
        assert isinstance(result, RelayedSocket), result
        result.settimeout(WAIT_S)
        return result

    def failed(self) -> Opened:
        result = self._results.get(timeout=WAIT_S)
        self.ended()
        return result

    def ended(self) -> None:
        self.relay.join(WAIT_S)
        assert not self.relay.is_alive()


def started(
    ends: tuple[socket.socket, socket.socket], contexts: Contexts
) -> tuple[Started, Started]:
    """The relays of a slave and its master."""
    client, server = ends
    return (
        Started(client, contexts.client, server=False),
        Started(server, contexts.server, server=True),
    )


def received(plain: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size and (piece := plain.recv(100_000)):
        found += piece
    return bytes(found)


def send_in_pieces(plain: socket.socket, data: bytes) -> None:
    randomness, at = random.Random(len(data)), 0
    while at < len(data):
        end = at + randomness.choice((1, 8, 100, 20_000, 300_000))
        plain.sendall(data[at:end])
        at = end


def test_bytes_arrive_in_both_directions_at_once(
    ends: tuple[socket.socket, socket.socket], contexts: Contexts
) -> None:
    address = ends[0].getsockname()
    slave, master = started(ends, contexts)
    with slave.opened() as near, master.opened() as far:
        assert far.getpeername() == address
        sent = [random.Random(seed).randbytes(SIZE) for seed in range(2)]
        senders = [
            threading.Thread(target=send_in_pieces, args=pair)
            for pair in zip((near, far), sent, strict=True)
        ]
        got: dict[int, bytes] = {}
        reader = threading.Thread(target=lambda: got.update({0: received(far, SIZE)}))
        for thread in (*senders, reader):
            thread.start()
        got[1] = received(near, SIZE)
        for thread in (*senders, reader):
            thread.join(WAIT_S)
        assert [got[0], got[1]] == sent
        near.sendall(b"last")
        near.close()
        assert received(far, 100) == b"last"
    slave.ended()
    master.ended()
    assert (slave.relay.error, master.relay.error) == (None, None)


def test_an_end_that_reads_nothing_does_not_keep_the_relay(
    ends: tuple[socket.socket, socket.socket], contexts: Contexts
) -> None:
    slave, master = started(ends, contexts)
    with slave.opened() as near, master.opened():
        near.setblocking(False)
        with pytest.raises(BlockingIOError):
            for _ in range(10_000):
                near.send(bytes(100_000))
        near.close()
        slave.ended()
    master.ended()


def test_a_client_without_a_certificate_is_refused(
    ends: tuple[socket.socket, socket.socket], contexts: Contexts
) -> None:
    client, server = ends
    stranger = Started(client, contexts.stranger, server=False)
    master = Started(server, contexts.server, server=True)
    with stranger.opened() as plain:  # with TLS 1.3 the refusal comes behind the handshake
        assert plain.recv(1) == b""
    assert isinstance(master.failed(), ssl.SSLError)
    stranger.ended()
    assert "certificate required" in str(stranger.relay.error).lower().replace("_", " ")


def test_a_connection_that_is_not_encrypted_is_refused(
    ends: tuple[socket.socket, socket.socket], contexts: Contexts
) -> None:
    client, server = ends
    master = Started(server, contexts.server, server=True)
    client.sendall(bytes(8))
    assert isinstance(master.failed(), NotEncryptedError)


def test_a_handshake_that_does_not_end_is_cut(
    ends: tuple[socket.socket, socket.socket], contexts: Contexts
) -> None:
    client, server = ends
    master = Started(server, contexts.server, server=True, timeout_s=0.05)
    client.sendall(b"\x16\x03\x01")
    assert isinstance(master.failed(), TimeoutError)


@pytest.mark.parametrize("complete", [False, True])
def test_a_relay_is_cut_in_its_handshake_and_later(
    complete: bool, ends: tuple[socket.socket, socket.socket], contexts: Contexts
) -> None:
    client, server = ends
    master = Started(server, contexts.server, server=True)
    if not complete:
        master.relay.cut()
        assert isinstance(master.failed(), OSError)
        return
    slave = Started(client, contexts.client, server=False)
    with slave.opened() as near, master.opened() as far:
        master.relay.cut()
        assert (near.recv(1), far.recv(1)) == (b"", b"")
    slave.ended()
    master.ended()
