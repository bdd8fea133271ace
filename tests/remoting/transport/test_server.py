"""Server connections, tested with plain sockets."""

import asyncio
import contextlib
import logging
import socket

import pytest
import uvloop

from congreve.remoting.errors import ConnectError, RequestTimeoutError
from congreve.remoting.lanes.lane import LaneSink
from congreve.remoting.messages.codes import CommandFlag
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import QueueRequestHeader
from congreve.remoting.transport.connection import ConnectionLimits
from congreve.remoting.transport.server import RemotingServer, ServerLimits

LANES = {"number": 1}
ECHO, ECHO_LATER, FAIL, NO_ANSWER, READ_HEADER = 1, 2, 3, 4, 5


@pytest.fixture(params=["asyncio", "uvloop", "two lanes"])
def run(request, monkeypatch):
    """Runs a scenario on the event loop of that name, or with two lanes beside uvloop."""
    factory = asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop
    monkeypatch.setitem(LANES, "number", 1 + (request.param == "two lanes"))

    def runner(coroutine):
        with asyncio.Runner(loop_factory=factory) as loop:
            loop.run(asyncio.wait_for(coroutine, 20))

    return runner


def echo(request, connection):
    return request.reply(0, body=request.body)


async def echo_later(request, connection):
    await asyncio.sleep(0)
    return request.reply(0, body=request.body)


def fail(request, connection):
    raise ValueError("broken on \udcff purpose")


def read_header(request, connection):
    QueueRequestHeader.read(request)


HANDLERS = {
    ECHO: echo,
    ECHO_LATER: echo_later,
    FAIL: fail,
    NO_ANSWER: lambda request, connection: None,
    READ_HEADER: read_header,
}


@contextlib.asynccontextmanager
async def serving(handlers=HANDLERS, **settings):
    sinks = [LaneSink() for _ in range(LANES["number"])]
    server = RemotingServer(handlers, lane_sinks=sinks, **settings)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@contextlib.asynccontextmanager
async def peer(server):
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def receive(reader):
    head = await reader.readexactly(4)
    return RemotingCommand.decode(head + await reader.readexactly(int.from_bytes(head, "big")))


def request(code, opaque=0, **settings):
    return RemotingCommand(code=code, opaque=opaque, **settings).encode()


def test_pipelined_requests_are_answered_in_pieces_of_any_size(run):
    async def scenario():
        stream = b"".join(request(ECHO, i, body=b"%d" % i, serialize_type=i % 2) for i in range(40))
        async with serving() as server, peer(server) as (reader, writer):
            for size in (1, 7, 4096):
                for at in range(0, len(stream), size):
                    writer.write(stream[at : at + size])
                    if size == 1:
                        await writer.drain()
                        await asyncio.sleep(0)
                answers = [await receive(reader) for _ in range(40)]
                assert [answer.opaque for answer in answers] == list(range(40))
                assert [answer.body for answer in answers] == [b"%d" % i for i in range(40)]
                assert [answer.serialize_type for answer in answers] == [0, 1] * 20

    run(scenario())


def test_peers_with_endless_errors_do_not_fill_the_log(run, caplog):
    async def scenario():
        async with serving({READ_HEADER: read_header}) as server:
            for number in range(50):
                async with peer(server) as (reader, writer):
                    writer.write(request(READ_HEADER, number))
                    assert (await receive(reader)).code == 1
                    writer.write(bytes(4) * 100)
                    assert await reader.read() == b""

    run(scenario())
    lines = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(lines) == 2, lines


def test_connections_that_share_a_buffer_keep_their_partial_frames_apart(run):
    async def scenario():
        async with serving() as server, contextlib.AsyncExitStack() as stack:
            peers = [await stack.enter_async_context(peer(server)) for _ in range(5)]
            frames = [
                request(ECHO, i, body=bytes([i]) * size)
                for i, size in enumerate((10, 5_000, 40_000, 700_000, 5_000_000))
            ]
            for part in range(3):
                for (_, writer), data in zip(peers, frames, strict=True):
                    third = len(data) // 3
                    writer.write(data[part * third : (part + 1) * third if part < 2 else None])
                    await asyncio.sleep(0.01)
            for i, (reader, _) in enumerate(peers):
                answer = await receive(reader)
                assert answer.opaque == i
                assert set(answer.body) == {i}
                assert request(ECHO, i, body=answer.body) == frames[i]

    run(scenario())


def test_unknown_code_is_answered_even_when_sent_oneway(run):
    async def scenario():
        async with serving() as server, peer(server) as (reader, writer):
            for flag in (0, int(CommandFlag.ONEWAY)):
                writer.write(request(513, 7, flag=flag, serialize_type=1))
                answer = await receive(reader)
                assert (answer.code, answer.opaque, answer.serialize_type) == (3, 7, 1)
                assert answer.remark == " request type 513 not supported"

    run(scenario())


def test_a_failing_handler_is_answered_and_logged(run, caplog):
    async def scenario():
        async with serving() as server, peer(server) as (reader, writer):
            writer.write(request(FAIL, 1) + request(READ_HEADER, 2, ext_fields={"topic": "t"}))
            first, second = await receive(reader), await receive(reader)
            assert (first.code, first.opaque) == (1, 1)
            assert first.remark == "ValueError: broken on ? purpose"
            assert (second.code, second.opaque) == (1, 2)
            assert "'queueId' is missing" in second.remark

    with caplog.at_level(logging.WARNING):
        run(scenario())
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]


def test_oneway_requests_and_handlers_without_answer_are_silent(run):
    async def scenario():
        async with serving() as server, peer(server) as (reader, writer):
            for code in (ECHO, ECHO_LATER, FAIL):
                writer.write(request(code, flag=int(CommandFlag.ONEWAY)))
            writer.write(request(NO_ANSWER) + request(ECHO, 9))
            assert (await receive(reader)).opaque == 9
            writer.write(request(ECHO, 10))
            assert (await receive(reader)).opaque == 10

    run(scenario())


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x06\0\0\0\x02{]", b"\0\0\0\x06\0\0\0\x09{}"],
)
def test_an_invalid_stream_closes_only_its_own_connection(run, garbage):
    closed = []

    async def scenario():
        async with (
            serving(on_close=closed.append) as server,
            peer(server) as (reader, writer),
            peer(server) as (other_reader, other_writer),
        ):
            writer.write(request(ECHO, 5) + garbage)
            assert (await receive(reader)).opaque == 5
            assert await reader.read() == b""
            other_writer.write(request(ECHO, 6))
            assert (await receive(other_reader)).opaque == 6
            assert len(closed) == 1
        assert len(closed) == 2
        assert all(connection.closed for connection in closed)

    run(scenario())


def test_an_idle_connection_is_closed_and_a_busy_one_is_not(run):
    async def scenario():
        limits = ServerLimits(idle_timeout_s=3)
        async with (
            serving(limits=limits) as server,
            peer(server) as (idle_reader, _),
            peer(server) as (reader, writer),
        ):
            while not idle_reader.at_eof():
                writer.write(request(ECHO))
                await receive(reader)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(idle_reader.read(1), 0.05)
            while len(server.connections) > 1:  # a lane notifies the loop after it has closed
                await asyncio.sleep(0.01)
            assert len(server.connections) == 1

    run(scenario())


def test_reading_pauses_while_too_many_requests_are_unanswered(run):
    async def scenario():
        started = 0
        gate = asyncio.Event()

        async def wait(request, connection):
            nonlocal started
            started += 1
            await gate.wait()
            return request.reply(0)

        limits = ServerLimits(connection=ConnectionLimits(unanswered_requests=8))
        async with serving({1: wait}, limits=limits) as server, peer(server) as (reader, writer):
            writer.write(b"".join(request(1, i) for i in range(500)))
            while started < 8:
                await asyncio.sleep(0)
            await asyncio.sleep(0.1)
            assert started == 8
            gate.set()
            assert {(await receive(reader)).opaque for _ in range(500)} == set(range(500))

    run(scenario())


def test_reading_pauses_while_the_peer_does_not_read(run):
    async def scenario():
        served = 0

        def large(request, connection):
            nonlocal served
            served += 1
            return request.reply(0, body=bytes(100_000))

        limits = ServerLimits(connection=ConnectionLimits(write_high_water=200_000))
        async with serving({1: large}, limits=limits) as server, peer(server) as (reader, writer):
            reader._transport.pause_reading()
            writer.write(b"".join(request(1, i) for i in range(2_000)))
            while not served:
                await asyncio.sleep(0)
            await asyncio.sleep(0.2)
            assert served < 500  # what the kernel's buffers take, and a little
            reader._transport.resume_reading()
            assert [(await receive(reader)).opaque for _ in range(2_000)] == list(range(2_000))

    run(scenario())


def test_answers_of_handlers_at_work_wait_until_the_peer_reads(run):
    async def scenario():
        started = 0
        gate = asyncio.Event()

        async def large(request, connection):
            nonlocal started
            started += 1
            await gate.wait()
            return request.reply(0, body=bytes(1 << 20))

        async with serving({1: large}) as server, peer(server) as (reader, writer):
            reader._transport.pause_reading()
            writer.write(b"".join(request(1, i) for i in range(100)))
            while started < 100:
                await asyncio.sleep(0)
            gate.set()
            await asyncio.sleep(0.1)
            (connection,) = server.connections
            # One answer beyond the limit of 1 MiB; the others wait, and count.
            assert connection._transport.get_write_buffer_size() < 3 << 20
            assert connection.unread > 80 << 20
            reader._transport.resume_reading()
            assert {(await receive(reader)).opaque for _ in range(100)} == set(range(100))

    run(scenario())


@pytest.mark.parametrize(
    "large", [{"body": bytes(100_000)}, {"ext_fields": {"properties": "x" * 100_000}}]
)
def test_reading_pauses_while_requests_at_work_take_many_bytes(run, large):
    async def scenario():
        started = 0
        gate = asyncio.Event()

        async def wait(request, connection):
            nonlocal started
            started += 1
            await gate.wait()
            return request.reply(0)

        limits = ServerLimits(connection=ConnectionLimits(unanswered_bytes=400_000))
        async with serving({1: wait}, limits=limits) as server, peer(server) as (reader, writer):
            writer.write(b"".join(request(1, i, **large) for i in range(40)))
            while started < 4:
                await asyncio.sleep(0)
            await asyncio.sleep(0.1)
            assert started == 4
            gate.set()
            assert {(await receive(reader)).opaque for _ in range(40)} == set(range(40))

    run(scenario())


def test_a_server_sends_requests_to_its_client_with_its_own_opaques(run):
    async def scenario():
        answers = asyncio.Queue()

        async def ask(request, connection):
            asked = RemotingCommand(code=307, body=b"how are you")
            answers.put_nowait(await connection.invoke(asked, 5))
            connection.oneway(RemotingCommand(code=40))
            return request.reply(0)

        async with serving({1: ask}) as server, peer(server) as (reader, writer):
            writer.write(request(1, 0))
            question = await receive(reader)
            assert (question.code, question.opaque, question.flag) == (307, 0, 0)
            writer.write(question.reply(0, body=b"fine").encode())
            notice = await receive(reader)
            assert (notice.code, notice.is_oneway) == (40, True)
            assert (await receive(reader)).opaque == 0
            assert (await answers.get()).body == b"fine"

    run(scenario())


def test_a_client_that_does_not_answer_times_out(run):
    async def scenario():
        async def ask(request, connection):
            with pytest.raises(RequestTimeoutError):
                await connection.invoke(RemotingCommand(code=307), 0.05)
            return request.reply(207)

        async with serving({1: ask}) as server, peer(server) as (reader, writer):
            writer.write(request(1))
            question = await receive(reader)
            assert (await receive(reader)).code == 207
            writer.write(question.reply(0).encode() + request(9))
            assert (await receive(reader)).code == 3

    run(scenario())


def test_handlers_may_answer_during_a_stop(run):
    async def scenario():
        begun = asyncio.Event()

        async def slow(request, connection):
            begun.set()
            await asyncio.sleep(0.1)
            return request.reply(0)

        async with serving({1: slow}) as server, peer(server) as (reader, writer):
            writer.write(request(1, 3))
            await begun.wait()
            await server.stop()
            assert (await receive(reader)).opaque == 3
            assert await reader.read() == b""

    run(scenario())


@pytest.mark.parametrize("turns", range(6))
def test_a_new_connection_does_not_delay_a_stop(turns):
    """A lane may accept it when the event loop has closed all others."""

    async def scenario():
        server = RemotingServer(HANDLERS)
        await server.start()
        with socket.create_connection(("127.0.0.1", server.port)):
            for _ in range(turns):
                await asyncio.sleep(0)
            async with asyncio.timeout(30):
                await server.stop()
        assert not server.connections

    asyncio.run(scenario())


def test_a_stop_ends_in_bounded_time(run):
    async def scenario():
        async def never(request, connection):
            await asyncio.Event().wait()

        limits = ServerLimits(stop_s=0.1)
        async with serving({1: never}, limits=limits) as server, peer(server) as (_, writer):
            writer.write(request(1))
            while not server.connections:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            await server.stop()
            assert not server.connections

    run(scenario())


def test_the_error_for_a_port_in_use_names_the_address(run):
    async def scenario():
        async with serving() as server:
            with pytest.raises(ConnectError, match=f"{server.port}"):
                await RemotingServer({}, port=server.port).start()

    run(scenario())


def test_the_address_of_a_peer_has_the_form_that_records_hold(run):
    async def scenario():
        async with serving() as server, peer(server) as (reader, writer):
            writer.write(request(ECHO))
            await receive(reader)
            (connection,) = server.connections
            port = writer.get_extra_info("sockname")[1]
            assert connection.peer == ("127.0.0.1", port)
            assert connection.peer_bytes == bytes([127, 0, 0, 1]) + port.to_bytes(4, "big")

    run(scenario())
