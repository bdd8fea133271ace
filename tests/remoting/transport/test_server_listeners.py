"""A server that listens at several addresses."""

from __future__ import annotations

import asyncio
import socket

import pytest

from congreve.remoting.errors import ConnectError
from congreve.remoting.lanes.lane import LaneSink
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.client import RemotingClient
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.server import RemotingServer

HOSTS = {"": "127.0.0.1", "outside": "127.0.0.2", "inside": "127.0.0.3"}


def name_of(request: RemotingCommand, connection: Connection) -> RemotingCommand:
    return request.reply(0, body=connection.listener.encode())


@pytest.mark.parametrize("lanes", [1, 2])
async def test_a_connection_knows_its_listener(lanes: int) -> None:
    further = {name: (host, 0) for name, host in HOSTS.items() if name}
    sinks = [LaneSink() for _ in range(lanes)]
    server = RemotingServer({1: name_of}, lane_sinks=sinks, listeners=further)
    await server.start()
    client = RemotingClient(timeout_s=30)
    for name, host in HOSTS.items():
        answer = await client.invoke(f"{host}:{server.ports[name]}", RemotingCommand(code=1))
        assert answer.body == name.encode()
    await client.close()
    await server.stop()
    for name, host in HOSTS.items():
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(host, server.ports[name])


async def test_a_listener_that_cannot_listen_leaves_no_other() -> None:
    with socket.create_server((HOSTS["outside"], 0)) as taken:
        further = {"outside": (HOSTS["outside"], taken.getsockname()[1])}
        server = RemotingServer({}, listeners=further)
        with pytest.raises(ConnectError, match=r"127\.0\.0\.2"):
            await server.start()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", server.port)
