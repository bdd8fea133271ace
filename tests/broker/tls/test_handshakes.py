"""A thousand handshakes that do not end: they are cut, and leave no memory."""

import asyncio
import contextlib
import ssl
from pathlib import Path

import pytest
from harness.certificates import Authority
from harness.eventually import eventually
from parsers.measure import allocated

from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.tls.certificates import ServerCertificates, client_context
from congreve.remoting.tls.settings import ClientTls, ServerTls
from congreve.remoting.transport.client import RemotingClient
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.server import RemotingServer

ECHO = 1
EACH = 100
GROWTH_MAX = 2 << 20
"""Bytes; a session of OpenSSL that is not freed takes more than 10 KiB, so 300 take 3 MiB."""


def echo(request: RemotingCommand, connection: Connection) -> RemotingCommand:
    return request.reply(0, body=request.body)


def beginning(context: ssl.SSLContext) -> bytes:
    """The first record of a handshake."""
    written = ssl.MemoryBIO()
    session = context.wrap_bio(ssl.MemoryBIO(), written, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        session.do_handshake()
    return written.read()


async def test_handshakes_that_do_not_end_are_cut_and_leave_no_memory(
    tmp_path: Path, quick: bool
) -> None:
    rounds = 4 if quick else 10
    authority = Authority(tmp_path)
    certificate, key = authority.issue("server")
    certificates = ServerCertificates(
        ServerTls(cert_path=str(certificate), key_path=str(key), handshake_timeout_s=0.3)
    )
    context = client_context(ClientTls(trust_cert_path=str(authority.path), check_host_name=True))
    server = RemotingServer({ECHO: echo}, certificates=certificates)
    await server.start()
    client = RemotingClient(timeout_s=30, connect_timeout_s=30, ssl=context)
    address, command = f"127.0.0.1:{server.port}", RemotingCommand(code=ECHO, body=b"x")
    held = []
    half = beginning(context)
    try:
        await client.invoke(address, command)
        connection = await client.connection(address)
        for _ in range(rounds):
            await storm(server.port, half)
            assert (await client.invoke(address, command)).body == b"x"
            await eventually(lambda: len(server.connections) == 1)
            held.append(allocated())
        assert await client.connection(address) is connection
        cut = certificates.late_handshake_count + certificates.failed_handshake_count
        assert cut == rounds * EACH
        assert held[-1] - held[0] < GROWTH_MAX
    finally:
        await client.close()
        await server.stop()


async def storm(port: int, half: bytes) -> None:
    """Begin handshakes, each cut at another byte, and wait until the server closes them."""
    peers = []
    for number in range(EACH):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(half[: 1 + number * (len(half) - 1) // (EACH - 1)])
        peers.append((reader, writer))
    for reader, writer in peers:
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), 30)
        writer.close()
