"""Slow requests are logged with the place where their time went."""

import asyncio
import logging
import re
import socket
import time

import pytest
from harness.eventually import eventually

import congreve
from congreve.broker.figures.handler_times import HandlerTimes
from congreve.broker.figures.put_times import PutTimes, requests_of
from congreve.broker.figures.slow_requests import SlowRequests
from congreve.client import Message, Producer, PullConsumer
from congreve.remoting.messages.codes import RequestCode
from congreve.remoting.messages.command import RemotingCommand

from ..conftest import FakeConnection
from ..tool import config_of, running

CODE = RequestCode.GET_BROKER_RUNTIME_INFO


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


def timed(handler, clock):
    slow = SlowRequests(0.5, clock)
    return HandlerTimes([slow.note], clock).watch({CODE: handler})[CODE]


def lines_of(caplog) -> list[str]:
    return [r.getMessage() for r in caplog.records if "slow request" in r.getMessage()]


async def test_a_slow_request_of_a_grpc_client_says_so(clock, caplog):
    def handler(request, connection):
        clock.now += 1
        return request.reply(0)

    connection = FakeConnection()
    connection.speaks_http2 = True
    timed(handler, clock)(RemotingCommand(code=CODE), connection)
    (line,) = lines_of(caplog)
    assert "from 127.0.0.1:40000 by gRPC took 1000 ms" in line


async def test_time_is_split_into_work_and_waiting(clock, caplog):
    async def handler(request, connection):
        clock.now += 0.010
        later = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(later.set_result, None)
        asyncio.get_running_loop().call_soon(setattr, clock, "now", 0.910)
        await later
        clock.now += 0.020
        return request.reply(0)

    watched = timed(handler, clock)
    answer = await watched(RemotingCommand(code=CODE), FakeConnection())
    assert answer.code == 0
    (line,) = lines_of(caplog)
    assert "GET_BROKER_RUNTIME_INFO from 127.0.0.1:40000 took 930 ms: 30 ms on" in line
    assert "900 ms of waiting" in line


@pytest.mark.parametrize(("spent", "lines"), [(0.499, 0), (0.5, 1)])
def test_only_slow_requests_are_logged_and_repeats_are_limited(clock, caplog, spent, lines):
    def handler(request, connection):
        clock.now += spent

    watched = timed(handler, clock)
    for _ in range(5):
        assert watched(RemotingCommand(code=CODE), FakeConnection()) is None
    assert len(lines_of(caplog)) == lines


async def test_errors_are_raised_and_timed(clock, caplog):
    async def handler(request, connection):
        clock.now += 1
        raise ValueError("no")

    watched = timed(handler, clock)
    with pytest.raises(ValueError, match="no"):
        await watched(RemotingCommand(code=CODE), FakeConnection())
    assert len(lines_of(caplog)) == 1


async def test_a_cancelled_request_ends_its_handler(clock, caplog):
    ended = []

    async def handler(request, connection):
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            ended.append(request)
            raise

    watched = timed(handler, clock)
    task = asyncio.ensure_future(watched(RemotingCommand(code=CODE), FakeConnection()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(ended) == 1


async def test_a_broker_logs_slow_requests_if_configured(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    async with running(config_of(tmp_path, slow_request_millis=1)) as (tool, broker):
        broker.managers.pieces._piece_s = 0.0
        for number in range(200):
            broker.managers.metadata.topics.create_internal(f"T{number}", 4)
        assert (await tool.ask(RequestCode.GET_ALL_TOPIC_CONFIG)).code == 0
    assert any("GET_ALL_TOPIC_CONFIG" in line for line in lines_of(caplog))


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_a_broker_logs_what_compiled_code_served_slowly(tmp_path, caplog, flush):
    caplog.set_level(logging.WARNING)
    settings = {"slowRequestMillis": 3_600_000, "flushDiskType": flush}
    async with congreve.serve(tmp_path, **settings) as node:
        for times in node.broker._paths.put_times:
            times.slow_ns = 0
        async with Producer(node.address, group="p") as producer:
            # Handlers store the first ones, until the queue has its file.
            while not any("request SEND" in line for line in lines_of(caplog)):
                sent = await producer.send(Message(topic="T", body=b"x"))
                await asyncio.sleep(0.05)
        async with PullConsumer(node.address, group="c") as consumer:
            for _ in range(3):
                assert (await consumer.pull(sent.queue, sent.queue_offset)).messages
        await eventually(lambda: any("request PULL" in line for line in lines_of(caplog)))
    line = next(line for line in lines_of(caplog) if "request SEND" in line)
    assert re.fullmatch(
        r"slow request SEND_MESSAGE_V2 from 127\.0\.0\.1:\d+ took \d+ ms: \d+ ms behind other"
        r" connections, \d+ ms of work, \d+ ms for new files, \d+ ms until it was on disk,"
        r" \d+ ms until a slave had it; 1 requests with 1 messages came together, \d+ more chunks"
        r" were slow",
        line,
    )


async def test_a_pull_that_waits_long_for_the_disk_is_logged(caplog):
    slow = SlowRequests(0.5)
    for begun_ms in (time.monotonic_ns() // 1_000_000, 0):
        slow.note_read(FakeConnection(), begun_ms)
    (line,) = lines_of(caplog)
    assert "PULL_MESSAGE" in line and line.endswith("ms to read old messages from disk")


def test_a_slow_chunk_of_a_grpc_client_says_so(clock, caplog):
    times = PutTimes()
    slow = SlowRequests(0.5, clock)
    slow.watch_threads([times])
    peer = socket.inet_aton("10.0.0.7") + (41_234).to_bytes(4, "big")
    for by_grpc in (True, False):
        begun_ns = time.monotonic_ns() - 2_000_000_000
        times.count(begun_ns, 1, requests_of(310), peer=peer, by_grpc=by_grpc)
        slow.note_chunks()
        clock.now += 60
    first, second = lines_of(caplog)
    assert "SEND_MESSAGE_V2 from 10.0.0.7:41234 by gRPC took" in first
    assert "SEND_MESSAGE_V2 from 10.0.0.7:41234 took" in second
