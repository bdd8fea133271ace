"""TLS at a server's port, by its first byte, in lanes and by the event loop in front of them."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from congreve.remoting.errors import ConnectError, ConnectionLostError, RemotingError
from congreve.remoting.lanes.lane import LaneSink
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.tls import certificates
from congreve.remoting.tls.certificates import ServerCertificates, client_context
from congreve.remoting.tls.errors import TlsError
from congreve.remoting.tls.settings import ClientAuth, ClientTls, ServerTls, TlsMode
from congreve.remoting.transport.client import RemotingClient
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.guard import ConnectionGuard, SharedLimits
from congreve.remoting.transport.server import RemotingServer, ServerLimits
from tests.harness.certificates import Authority
from tests.harness.eventually import eventually

ECHO = 1
Run = Callable[[Coroutine[Any, Any, None]], None]


def echo(request: RemotingCommand, connection: Connection) -> RemotingCommand:
    return request.reply(0, body=request.body)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server_files(authority: Authority) -> tuple[Path, Path]:
    return authority.issue("server")


@pytest.fixture(params=["lanes", "without OpenSSL", "asyncio without OpenSSL"])
def lanes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param.endswith("without OpenSSL"):
        monkeypatch.setattr(certificates, "load_openssl", lambda: None)
    yield request.param


@pytest.fixture
def run(lanes: str) -> Run:
    factory = asyncio.new_event_loop if lanes.startswith("asyncio") else uvloop.new_event_loop

    def runner(scenario: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=factory) as loop:
            loop.run(asyncio.wait_for(scenario, 60))

    return runner


@pytest.fixture
def settings(server_files: tuple[Path, Path]) -> ServerTls:
    certificate, key = server_files
    return ServerTls(cert_path=str(certificate), key_path=str(key))


@contextlib.asynccontextmanager
async def serving(
    lanes: str,
    settings: ServerTls | None,
    limits: ServerLimits | None = None,
    shared: SharedLimits | None = None,
) -> AsyncIterator[RemotingServer]:
    sinks = [LaneSink(), LaneSink()] if lanes == "lanes" else None
    server = RemotingServer(
        {ECHO: echo},
        lane_sinks=sinks,
        certificates=None if settings is None else ServerCertificates(settings),
        limits=limits,
        guard=ConnectionGuard(shared),
    )
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@contextlib.asynccontextmanager
async def client(context: ssl.SSLContext | None) -> AsyncIterator[RemotingClient]:
    found = RemotingClient(timeout_s=30, connect_timeout_s=30, ssl=context)
    try:
        yield found
    finally:
        await found.close()


def trusting(authority: Authority, files: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    certificate, key = files or ("", "")
    return client_context(
        ClientTls(
            trust_cert_path=str(authority.path),
            cert_path=str(certificate),
            key_path=str(key),
            check_host_name=True,
        )
    )


async def echoes(context: ssl.SSLContext | None, server: RemotingServer, size: int = 10) -> None:
    async with client(context) as sender:
        command = RemotingCommand(code=ECHO, body=b"x" * size)
        answer = await sender.invoke(f"127.0.0.1:{server.port}", command)
        assert answer.body == b"x" * size


def test_a_permissive_server_serves_both_kinds(
    run: Run, lanes: str, settings: ServerTls, authority: Authority
) -> None:
    async def scenario() -> None:
        async with serving(lanes, settings) as server:
            for size in (0, 100, 20_000, 3_000_000):
                await echoes(trusting(authority), server, size)
                await echoes(None, server, size)

    run(scenario())


def test_pipelined_requests_in_records_of_any_size(
    run: Run, lanes: str, settings: ServerTls, authority: Authority
) -> None:
    async def scenario() -> None:
        frames = [
            RemotingCommand(code=ECHO, opaque=i, body=bytes([i % 256]) * (i * i)).encode()
            for i in range(300)
        ]
        stream = b"".join(frames)
        async with serving(lanes, settings) as server:
            for size in (997, 100_000, len(stream)):
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", server.port, ssl=trusting(authority)
                )
                answers = asyncio.ensure_future(_frames(reader, len(frames)))
                for at in range(0, len(stream), size):
                    writer.write(stream[at : at + size])
                    await writer.drain()
                found = {each.opaque: each.body for each in await answers}
                assert found == {i: bytes([i % 256]) * (i * i) for i in range(300)}
                writer.close()

    run(scenario())


async def _frames(reader: asyncio.StreamReader, count: int) -> list[RemotingCommand]:
    found = []
    for _ in range(count):
        head = await reader.readexactly(4)
        body = await reader.readexactly(int.from_bytes(head, "big"))
        found.append(RemotingCommand.decode(head + body))
    return found


def test_an_enforcing_server_closes_plain_connections(
    run: Run,
    lanes: str,
    settings: ServerTls,
    authority: Authority,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        enforcing = ServerTls(
            mode=TlsMode.ENFORCING, cert_path=settings.cert_path, key_path=settings.key_path
        )
        async with serving(lanes, enforcing) as server:
            for _ in range(3):
                with pytest.raises(ConnectionLostError):
                    await echoes(None, server)
            await echoes(trusting(authority), server)
            assert server.certificates is not None
            counted = server.certificates
            await eventually(lambda: counted.plain_refused_count == 3)

    run(scenario())
    assert len([r for r in caplog.records if "not encrypted" in r.getMessage()]) == 1


def test_a_server_without_tls_closes_an_encrypted_connection(
    run: Run, lanes: str, authority: Authority
) -> None:
    async def scenario() -> None:
        async with serving(lanes, None) as server:
            with pytest.raises(RemotingError, match=r"[^: ]$"):
                await echoes(trusting(authority), server)

    run(scenario())


def test_a_server_requires_client_certificates_if_configured(
    run: Run, lanes: str, settings: ServerTls, authority: Authority, tmp_path: Path
) -> None:
    ours = authority.issue("client")
    theirs = Authority(tmp_path, "stranger").issue("stranger-client")

    async def scenario() -> None:
        for auth in (ClientAuth.REQUIRE, ClientAuth.OPTIONAL):
            strict = ServerTls(
                cert_path=settings.cert_path,
                key_path=settings.key_path,
                client_auth=auth,
                trust_cert_path=str(authority.path),
            )
            async with serving(lanes, strict) as server:
                for _ in range(2):  # the second time with the ticket of the first
                    await echoes(trusting(authority, ours), server)
                with pytest.raises((ConnectError, ConnectionLostError)):
                    await echoes(trusting(authority, theirs), server)
                if auth == ClientAuth.OPTIONAL:
                    await echoes(trusting(authority), server)
                else:
                    with pytest.raises((ConnectError, ConnectionLostError)):
                        await echoes(trusting(authority), server)

    run(scenario())


def test_clients_check_the_certificate_of_the_server(
    run: Run, lanes: str, settings: ServerTls, authority: Authority, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with serving(lanes, settings) as server:
            stranger = Authority(tmp_path, "stranger")
            with pytest.raises(ConnectError, match="certificate verify failed"):
                await echoes(trusting(stranger), server)
            blind = client_context(ClientTls(auth_server=False))
            await echoes(blind, server)

    run(scenario())


def test_an_expired_certificate_is_refused_by_clients(
    run: Run, lanes: str, authority: Authority
) -> None:
    certificate, key = authority.issue("expired", days=-1)
    settings = ServerTls(cert_path=str(certificate), key_path=str(key))

    async def scenario() -> None:
        async with serving(lanes, settings) as server:
            with pytest.raises(ConnectError, match="expired"):
                await echoes(trusting(authority), server)

    run(scenario())


def test_a_key_with_a_password_is_read(run: Run, lanes: str, authority: Authority) -> None:
    certificate, key = authority.issue("locked", password="open sesame")
    paths = {"cert_path": str(certificate), "key_path": str(key)}

    async def scenario() -> None:
        async with serving(lanes, ServerTls(**paths, key_password="open sesame")) as server:
            await echoes(trusting(authority), server)

    run(scenario())
    for password in ("", "wrong"):
        with pytest.raises(TlsError, match=r"locked\.pem"):
            ServerCertificates(ServerTls(**paths, key_password=password))


def test_a_connection_with_an_unfinished_handshake_is_closed(
    run: Run,
    lanes: str,
    settings: ServerTls,
    authority: Authority,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        quick = ServerTls(
            cert_path=settings.cert_path, key_path=settings.key_path, handshake_timeout_s=0.5
        )
        async with serving(lanes, quick) as server:
            counted = server.certificates
            assert counted is not None
            halves = []
            for beginning in (b"\x16", b"\x16\x03\x01", b"\x16\x03\x01\x02\x00" + bytes(60)) * 7:
                half = socket.create_connection(("127.0.0.1", server.port))
                half.sendall(beginning)
                halves.append(half)
            await echoes(trusting(authority), server)
            await eventually(lambda: counted.late_handshake_count >= 14)
            await eventually(lambda: not server.connections)
            assert counted.late_handshake_count + counted.failed_handshake_count <= 21
            for half in halves:
                half.settimeout(30)
                with contextlib.suppress(ConnectionResetError):
                    while half.recv(100):
                        pass
                half.close()
            # A connection whose handshake is complete may be silent for longer.
            async with client(trusting(authority)) as sender:
                address = f"127.0.0.1:{server.port}"
                connection = await sender.connection(address)
                await asyncio.sleep(1.2)
                assert not connection.closed
                await sender.invoke(address, RemotingCommand(code=ECHO))
                assert await sender.connection(address) is connection

    run(scenario())
    assert len([r for r in caplog.records if "did not end in time" in r.getMessage()]) <= 2


def test_connections_without_requests_are_closed_with_and_without_tls(
    run: Run, lanes: str, settings: ServerTls, authority: Authority
) -> None:
    async def scenario() -> None:
        shared = SharedLimits(first_frame_timeout_s=1)
        async with serving(lanes, settings, shared=shared) as server:
            silent = await asyncio.open_connection("127.0.0.1", server.port)
            encrypted = await asyncio.open_connection(
                "127.0.0.1", server.port, ssl=trusting(authority)
            )
            for reader, writer in (silent, encrypted):
                assert await reader.read() == b""
                writer.close()
            await eventually(lambda: not server.connections)
            assert server.guard.counts()["cutSilentConnections"] == 2

    run(scenario())


def test_an_invalid_handshake_closes_only_its_own_connection(
    run: Run, lanes: str, settings: ServerTls, authority: Authority
) -> None:
    async def scenario() -> None:
        async with serving(lanes, settings) as server, client(trusting(authority)) as sender:
            address = f"127.0.0.1:{server.port}"
            command = RemotingCommand(code=ECHO, body=b"before")
            await sender.invoke(address, command)
            for _ in range(5):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(b"\x16" + bytes(range(200)))
                with contextlib.suppress(ConnectionError):
                    await reader.read()  # an alert, and the end
                writer.close()
            await sender.invoke(address, command)
            await eventually(lambda: len(server.connections) == 1)

    run(scenario())


def test_a_changed_certificate_is_loaded_without_losing_connections(
    run: Run, lanes: str, tmp_path: Path
) -> None:
    first, second = (Authority(tmp_path / name, name) for name in ("first", "second"))
    certificate, key = first.issue("server")
    settings = ServerTls(cert_path=str(certificate), key_path=str(key))
    new_certificate, new_key = second.issue("server")

    async def scenario() -> None:
        async with serving(lanes, settings) as server, client(trusting(first)) as old:
            address = f"127.0.0.1:{server.port}"
            command = RemotingCommand(code=ECHO, body=b"stays")
            await old.invoke(address, command)
            connection = await old.connection(address)
            counted = server.certificates
            assert counted is not None
            # The certificate alone does not fit the key: the old pair stays.
            shutil.copy(new_certificate, certificate)
            assert not counted.follow()
            await echoes(trusting(first), server)
            shutil.copy(new_key, key)
            await eventually(lambda: counted.replaced_count == 1)
            await echoes(trusting(second), server)
            with pytest.raises(ConnectError, match="certificate verify failed"):
                await echoes(trusting(first), server)
            await old.invoke(address, command)
            assert await old.connection(address) is connection

    run(scenario())


def test_a_client_without_tls_gets_a_closed_connection(
    run: Run, lanes: str, settings: ServerTls, authority: Authority
) -> None:
    async def scenario() -> None:
        limits = ServerLimits(idle_timeout_s=1.0)
        async with serving(lanes, settings, limits) as server:
            silent = await asyncio.open_connection("127.0.0.1", server.port)
            encrypted = await asyncio.open_connection(
                "127.0.0.1", server.port, ssl=trusting(authority)
            )
            for reader, writer in (silent, encrypted):
                assert await reader.read() == b""
                writer.close()

    run(scenario())
