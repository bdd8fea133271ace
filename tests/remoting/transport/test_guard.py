"""Limits over all connections of a server, and what happens to connections beyond them."""

import asyncio
import contextlib
import logging
import os
import resource
import socket
import struct
import time

import pytest
import uvloop
from harness.slowness import limit_s

from congreve.base.limited_log import LimitedLog
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.connection import ConnectionLimits
from congreve.remoting.transport.guard import ConnectionGuard, SharedLimits, most_connections
from congreve.remoting.transport.server import RemotingServer, ServerLimits

ECHO, LARGE = 1, 2
MIB = 1 << 20


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request):
    """Runs a scenario on the event loop of that name."""
    factory = asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop

    def runner(coroutine):
        with asyncio.Runner(loop_factory=factory) as loop:
            loop.run(asyncio.wait_for(coroutine, 30))

    return runner


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


HANDLERS = {
    ECHO: lambda request, connection: request.reply(0, body=request.body),
    LARGE: lambda request, connection: request.reply(0, body=bytes(MIB)),
}


@contextlib.asynccontextmanager
async def serving(guard=None, **settings):
    server = RemotingServer(HANDLERS, guard=guard, **settings)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


class Peer:
    def __init__(self, server):
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.address = ("127.0.0.1", server.port)

    async def __aenter__(self):
        await asyncio.get_running_loop().sock_connect(self.socket, self.address)
        return self

    async def __aexit__(self, *_):
        self.socket.close()

    async def send(self, data):
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def read(self, size):
        data = b""
        while len(data) < size:
            piece = await asyncio.get_running_loop().sock_recv(self.socket, size - len(data))
            if not piece:
                raise ConnectionResetError("closed")
            data += piece
        return data

    async def ask(self, code=ECHO, body=b""):
        await self.send(request(code, body))
        return await self.answer()

    async def answer(self):
        head = await self.read(4)
        return RemotingCommand.decode(head + await self.read(int.from_bytes(head, "big")))

    async def is_cut(self):
        with contextlib.suppress(ConnectionError):
            await self.read(1)
            return False
        return True


def request(code, body=b""):
    return RemotingCommand(code=code, body=body).encode()


def beginning(frame_size, sent):
    """The first bytes of a frame that says that it has `frame_size`."""
    frame = request(ECHO, bytes(frame_size))
    return frame[:sent]


async def until(condition):
    while not condition():
        await asyncio.sleep(0.01)


def open_descriptors():
    return len(os.listdir("/proc/self/fd"))


def test_connections_that_are_reset_at_once_leave_nothing_behind(run, caplog):
    async def scenario():
        async with serving() as server, Peer(server) as other:
            await other.ask()
            before = open_descriptors()
            for _ in range(200):
                with socket.create_connection(("127.0.0.1", server.port)) as checker:
                    checker.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await asyncio.sleep(0.05)
            await until(lambda: len(server.connections) == 1)
            await until(lambda: open_descriptors() <= before)
            assert (await other.ask(body=b"still here")).body == b"still here"
            assert len(server.guard.connections) == 1

    with caplog.at_level(logging.INFO):
        run(scenario())
    assert not caplog.records


def test_connections_over_the_limit_are_closed_and_the_others_served(run, caplog):
    async def scenario():
        guard = ConnectionGuard(SharedLimits(connections=3))
        async with (
            serving(guard) as server,
            serving(guard) as vip,
            Peer(server) as first,
            Peer(vip) as second,
            contextlib.AsyncExitStack() as stack,
        ):
            await first.ask()
            await second.ask()
            third = await stack.enter_async_context(Peer(server))
            await third.ask()
            for _ in range(20):
                async with Peer(server) as refused:
                    assert await refused.is_cut()
            assert (await first.ask(body=b"served")).body == b"served"
            assert guard.counts()["refusedConnections"] == 20
            await stack.aclose()
            await until(lambda: len(guard.connections) == 2)
            async with Peer(vip) as late:
                assert (await late.ask()).code == 0

    run(scenario())
    assert len(caplog.records) == 1
    assert "raise maxConnections" in caplog.text


def test_connections_of_one_address_are_limited_and_others_served(run):
    async def scenario():
        guard = ConnectionGuard(SharedLimits(connections_of_address=2))
        async with serving(guard, host="0.0.0.0") as server:
            async with Peer(server) as first, Peer(server) as second:
                assert (await first.ask()).code == (await second.ask()).code == 0
                for _ in range(5):
                    async with Peer(server) as refused:
                        assert await refused.is_cut()
                assert guard.counts()["refusedConnections"] == 5
                other = Peer(server)
                other.socket.bind(("127.0.0.5", 0))
                async with other:
                    assert (await other.ask()).code == 0
            await until(lambda: not server.connections)
            async with Peer(server) as again:
                assert (await again.ask()).code == 0

    run(scenario())


def test_the_default_limit_leaves_descriptors_for_the_store():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        for limit, wanted in ((64, 32), (1024, 512), (5000, 5000 - 1024)):
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit, hard), hard))
            assert most_connections() == wanted
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_unfinished_frames_are_bounded_and_the_largest_is_closed(run, caplog):
    async def scenario():
        guard = ConnectionGuard(SharedLimits(unfinished_bytes=4 * MIB))
        async with serving(guard) as server, contextlib.AsyncExitStack() as stack:
            good = await stack.enter_async_context(Peer(server))
            small = await stack.enter_async_context(Peer(server))
            await small.send(beginning(1000, 500))
            peers = [await stack.enter_async_context(Peer(server)) for _ in range(12)]
            for peer in peers:
                with contextlib.suppress(ConnectionError):
                    await peer.send(beginning(8 * MIB, MIB))
                assert (await good.ask(body=b"served")).body == b"served"
            await until(lambda: guard.counts()["cutUnfinishedFrames"] >= 9)
            await until(lambda: guard.counts()["unfinishedFrameBytes"] <= 4 * MIB)
            await small.send(request(ECHO, bytes(1000))[500:])
            assert (await small.answer()).body == bytes(1000)
            for peer in peers:
                peer.socket.close()
            await until(lambda: guard.counts()["unfinishedFrameBytes"] == 0)

    run(scenario())
    assert len(caplog.records) == 1


def test_a_declared_length_allocates_no_memory_before_its_bytes_arrive(run):
    async def scenario():
        async with serving() as server, contextlib.AsyncExitStack() as stack:
            for sent in (100, 40_000, 300_000):
                peer = await stack.enter_async_context(Peer(server))
                before = held(server)
                await peer.send(beginning(15 * MIB, sent))
                await until(lambda was=before, now=sent: held(server) - was >= now)
                assert held(server) - before <= sent + max(sent // 4, 32 * 1024)

    def held(server):
        return server.guard.counts()["unfinishedFrameBytes"]

    run(scenario())


def test_a_large_frame_that_arrives_byte_by_byte_is_not_copied_for_each(run):
    async def scenario():
        frame = request(ECHO, bytes(8 * MIB))
        async with serving() as server, Peer(server) as peer:
            peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await peer.send(frame[:-1000])
            unfinished = "unfinishedFrameBytes"
            await until(lambda: server.guard.counts()[unfinished] >= len(frame) - 1000)
            before = time.process_time()
            for at in range(len(frame) - 1000, len(frame)):
                await peer.send(frame[at : at + 1])
                await asyncio.sleep(0)
            assert len((await peer.answer()).body) == 8 * MIB
            # A copy of 8 MiB for each byte is 8 GiB, several seconds.
            assert time.process_time() - before < limit_s(1.5)

    run(scenario())


def test_unread_answers_of_all_connections_are_bounded(run, caplog):
    async def scenario():
        guard = ConnectionGuard(SharedLimits(unread_bytes=12 * MIB))
        limits = ServerLimits(connection=ConnectionLimits(write_high_water=8 * MIB))
        async with (
            serving(guard, limits=limits) as server,
            Peer(server) as good,
            contextlib.AsyncExitStack() as stack,
        ):
            for _ in range(8):
                peer = await stack.enter_async_context(Peer(server))
                await peer.send(request(LARGE) * 20)
            await until(lambda: guard.counts()["cutUnreadAnswers"] >= 5)
            assert (await good.ask(body=b"served")).body == b"served"
            await asyncio.sleep(0.6)
            assert guard.counts()["unreadAnswerBytes"] <= 12 * MIB
            assert any(connection.unread for connection in server.connections)

    run(scenario())
    assert len(caplog.records) == 1


def test_unread_answers_are_bounded_between_two_looks(run):
    async def scenario():
        guard = ConnectionGuard(SharedLimits(unread_bytes=12 * MIB), clock=Clock())
        guard.enforce_limits()  # and not again: the clock has one time
        limits = ServerLimits(connection=ConnectionLimits(write_high_water=8 * MIB))
        async with serving(guard, limits=limits) as server, contextlib.AsyncExitStack() as stack:
            for _ in range(8):
                peer = await stack.enter_async_context(Peer(server))
                await peer.send(request(LARGE) * 20)
            await until(lambda: guard.counts()["cutUnreadAnswers"] >= 5)
            assert sum(connection.unread for connection in server.connections) <= 13 * MIB

    run(scenario())


def test_a_limited_log_counts_the_lines_that_it_omits(caplog):
    clock = Clock()
    log = LimitedLog(logging.getLogger("limited"), 10, clock)
    for _ in range(5):
        log.warning("the disk is %d %% full", 99)
    clock.now += 10
    log.warning("the disk is %d %% full", 98)
    assert [record.getMessage() for record in caplog.records] == [
        "the disk is 99 % full",
        "the disk is 98 % full (and 4 times since the last such line)",
    ]
