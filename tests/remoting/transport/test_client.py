"""The client, against peers that behave and peers that do not."""

import asyncio
import contextlib

import pytest
import uvloop

from congreve.remoting.errors import (
    ConnectError,
    ConnectionLostError,
    FrameError,
    RequestTimeoutError,
    TooManyRequestsError,
)
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.client import RemotingClient
from congreve.remoting.transport.connection import ConnectionLimits


def run(coroutine):
    asyncio.run(asyncio.wait_for(coroutine, 20))


async def receive(reader):
    head = await reader.readexactly(4)
    return RemotingCommand.decode(head + await reader.readexactly(int.from_bytes(head, "big")))


@contextlib.asynccontextmanager
async def plain_server(serve):
    """A server of bare sockets; yields its address."""
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@contextlib.asynccontextmanager
async def client(**settings):
    made = RemotingClient(**settings)
    try:
        yield made
    finally:
        await made.close()


async def answer_backwards(reader, writer):
    """Collects ten requests, answers the last one first."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            requests = [await receive(reader) for _ in range(10)]
            for request in reversed(requests):
                writer.write(request.reply(0, body=request.body).encode())
    writer.close()


async def never_answer(reader, writer):
    await reader.read()
    writer.close()


def test_concurrent_requests_get_their_own_answers_over_one_connection():
    connections = []

    async def serve(reader, writer):
        connections.append(writer)
        await answer_backwards(reader, writer)

    async def scenario():
        async with plain_server(serve) as address, client() as made:
            commands = [RemotingCommand(code=1, body=b"%d" % i) for i in range(100)]
            answers = await asyncio.gather(*(made.invoke(address, each) for each in commands))
            assert [answer.body for answer in answers] == [b"%d" % i for i in range(100)]
        assert len(connections) == 1

    run(scenario())


def test_an_answer_that_does_not_come_times_out_alone():
    async def scenario():
        async with plain_server(never_answer) as address, client(timeout_s=5) as made:
            long = asyncio.create_task(made.invoke(address, RemotingCommand(code=1)))
            await asyncio.sleep(0)
            with pytest.raises(RequestTimeoutError, match="no answer"):
                await made.invoke(address, RemotingCommand(code=1), timeout_s=0.05)
            assert not long.done()
            await made.close()
            with pytest.raises(ConnectionLostError, match=f"{address}: the connection ended"):
                await long

    run(scenario())


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_connection_without_any_answer_is_left_after_a_timeout(factory):
    """RocketMQ's client does so, too: clientCloseSocketIfTimeout."""
    ends = []

    async def silent_then_echo(reader, writer):
        ends.append(ended := asyncio.Event())
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            if len(ends) == 1:
                await reader.read()
            while len(ends) > 1:
                request = await receive(reader)
                writer.write(request.reply(0, body=request.body).encode())
        ended.set()
        writer.close()

    async def scenario():
        async with plain_server(silent_then_echo) as address, client(timeout_s=20) as made:
            other = asyncio.create_task(made.invoke(address, RemotingCommand(code=1)))
            with pytest.raises(RequestTimeoutError):
                await made.invoke(address, RemotingCommand(code=1), timeout_s=0.3)
            with pytest.raises(ConnectionLostError, match="no answer in time"):
                await other
            await ends[0].wait()
            for call in (made.invoke, made.call):
                until = asyncio.get_running_loop().time() + 20 if call == made.call else 20
                answer = await call(address, RemotingCommand(code=1, body=b"x"), until)
                assert answer.body == b"x"
        assert len(ends) == 2

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(asyncio.wait_for(scenario(), 60))


def test_a_connection_with_answers_stays_after_a_timeout():
    async def answer_code_2(reader, writer):
        connections.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                request = await receive(reader)
                if request.code == 2:
                    writer.write(request.reply(0).encode())
        writer.close()

    connections = []

    async def scenario():
        async with plain_server(answer_code_2) as address, client() as made:
            slow = asyncio.create_task(made.invoke(address, RemotingCommand(code=1), timeout_s=0.3))
            await asyncio.sleep(0)
            while not slow.done():
                await made.invoke(address, RemotingCommand(code=2), timeout_s=20)
            with pytest.raises(RequestTimeoutError):
                await slow
            await made.invoke(address, RemotingCommand(code=2), timeout_s=20)
        assert len(connections) == 1

    run(scenario())


def test_requests_without_time_left_time_out_on_uvloop_too():
    """Its handle of a time that is now does not say its time."""

    async def scenario():
        async with plain_server(never_answer) as address, client() as made:
            connected = made.invoke(address, RemotingCommand(code=1), timeout_s=1)
            with pytest.raises(RequestTimeoutError):
                await connected
            calls = [
                made.invoke(address, RemotingCommand(code=1), timeout_s=seconds)
                for seconds in (0.0, 0.0001, 0.0, 0.01)
            ]
            found = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(one) for one in found] == [RequestTimeoutError] * 4

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(scenario(), 20))


def test_a_lost_connection_fails_waiting_requests_and_is_opened_again():
    async def serve(reader, writer):
        request = await receive(reader)
        if request.body == b"answer":
            writer.write(request.reply(0).encode())
        writer.close()

    async def scenario():
        lost = []
        async with plain_server(serve) as address, client(on_close=lost.append) as made:
            for _ in range(2):
                with pytest.raises(ConnectionLostError):
                    await made.invoke(address, RemotingCommand(code=1))
            answer = await made.invoke(address, RemotingCommand(code=1, body=b"answer"))
            assert answer.code == 0
            await asyncio.sleep(0.05)
            assert len(lost) == 3

    run(scenario())


def test_a_refused_connection_is_an_error_and_is_tried_again():
    async def scenario():
        async with plain_server(never_answer) as address:
            pass
        async with client() as made:
            for _ in range(2):
                with pytest.raises(ConnectError, match=address):
                    await made.invoke(address, RemotingCommand(code=1))
            for bad in ("", "host", "host:", ":1", "host:http"):
                with pytest.raises(ConnectError, match="host:port"):
                    await made.invoke(bad, RemotingCommand(code=1))

    run(scenario())


def test_requests_of_a_server_reach_the_handlers():
    async def serve(reader, writer):
        request = await receive(reader)
        # the same opaque as the pending request: only the flag distinguishes them
        writer.write(RemotingCommand(code=307, opaque=request.opaque, body=b"?").encode())
        answer = await receive(reader)
        writer.write(RemotingCommand(code=999, opaque=8).encode())
        refusal = await receive(reader)
        body = answer.body + b"|" + str(refusal.code).encode()
        writer.write(request.reply(0, body=body).encode())
        await reader.read()
        writer.close()

    async def scenario():
        handlers = {307: lambda request, connection: request.reply(0, body=b"fine")}
        async with plain_server(serve) as address, client(handlers=handlers) as made:
            answer = await made.invoke(address, RemotingCommand(code=34))
            assert answer.body == b"fine|3"

    run(scenario())


def test_the_client_disconnects_from_a_server_that_sends_invalid_frames():
    async def serve(reader, writer):
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()
        writer.close()

    async def scenario():
        async with plain_server(serve) as address, client() as made:
            with pytest.raises(ConnectionLostError):
                await made.invoke(address, RemotingCommand(code=1))

    run(scenario())


def test_requests_without_answer_are_limited():
    async def scenario():
        limits = ConnectionLimits(awaited_answers=2)
        async with plain_server(never_answer) as address, client(limits=limits) as made:
            waiting = [
                asyncio.create_task(made.invoke(address, RemotingCommand(code=1))) for _ in range(2)
            ]
            await asyncio.sleep(0.05)
            with pytest.raises(TooManyRequestsError, match="2 requests"):
                await made.invoke(address, RemotingCommand(code=1))
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            with pytest.raises(RequestTimeoutError):
                await made.invoke(address, RemotingCommand(code=1), 0.01)

    run(scenario())


def test_cancelled_calls_free_their_place_for_others():
    async def scenario():
        limits = ConnectionLimits(awaited_answers=2)
        async with plain_server(never_answer) as address, client(limits=limits) as made:
            connection = await made.connection(address)
            deadline = asyncio.get_running_loop().time() + 0.05
            calls = [connection.call(RemotingCommand(code=1), deadline) for _ in range(2)]
            with pytest.raises(TooManyRequestsError):
                connection.call(RemotingCommand(code=1), deadline)
            calls[0].cancel()
            await asyncio.gather(
                *calls[1:],
                connection.call(RemotingCommand(code=1), deadline),
                return_exceptions=True,
            )
            assert isinstance(calls[1].exception(), RequestTimeoutError)

    run(scenario())


def test_requests_of_one_turn_are_sent_in_order():
    arrived = []

    async def note(reader, writer):
        for _ in range(3):
            request = await receive(reader)
            arrived.append(request.body)
            writer.write(request.reply(0).encode())
        writer.close()

    async def scenario():
        async with plain_server(note) as address, client() as made:
            connection = await made.connection(address)
            deadline = asyncio.get_running_loop().time() + 5
            first = connection.call(RemotingCommand(code=1, body=b"first"), deadline)
            connection.send(RemotingCommand(code=1, opaque=77, body=b"between"))
            last = connection.call(RemotingCommand(code=1, body=b"last"), deadline)
            await asyncio.gather(first, last)
        assert arrived == [b"first", b"between", b"last"]

    run(scenario())


def test_a_request_that_cannot_be_sent_leaves_the_connection_usable():
    async def scenario():
        async with plain_server(answer_backwards) as address, client() as made:
            with pytest.raises(FrameError):
                await made.invoke(address, RemotingCommand(code=1, body=bytes(16 * 1024 * 1024)))
            for _ in range(9):
                await made.oneway(address, RemotingCommand(code=2))
            assert (await made.invoke(address, RemotingCommand(code=1))).code == 0

    run(scenario())


def test_a_closed_client_raises_a_clear_error():
    async def scenario():
        made = RemotingClient()
        await made.close()
        with pytest.raises(ConnectionLostError, match="closed"):
            await made.invoke("127.0.0.1:1", RemotingCommand(code=1))

    run(scenario())


NO_ADDRESSES = ("a..b:1", "x" * 64 + ".example:1", "\udc80:1", "127.0.0.1:99999", "h", ":1", "h:x")


@pytest.mark.parametrize("address", NO_ADDRESSES)
@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_an_address_that_is_none_is_a_connect_error(factory, address):
    async def main():
        async with client(connect_timeout_s=5) as made:
            with pytest.raises(ConnectError):
                await made.invoke(address, RemotingCommand(code=1))

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(asyncio.wait_for(main(), 20))
