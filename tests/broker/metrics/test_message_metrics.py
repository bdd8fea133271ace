"""RocketMQ 5's histograms and counts: sizes by type, times of requests, delays, transactions."""

import os
import time
from pathlib import Path

import pytest

import congreve
from congreve.broker.metrics.message_counts import TYPES, Histogram
from congreve.broker.metrics.put_times import NO_REQUESTS, PutTimes, requests_of
from congreve.client import Message, Producer, PullConsumer, TransactionProducer, TransactionState

from .scrapes import Series, of, scrape

MS = 1_000_000
MINUTE_MS = 60_000


def test_a_histogram_counts_values_on_a_bound_below_it() -> None:
    histogram = Histogram((10, 20))
    for value in (0, 10, 11, 20, 21, 99):
        histogram.count(value)
    histogram.count(15, 3)
    assert histogram.counts == [2, 5, 2]
    assert histogram.sum == 0 + 10 + 11 + 20 + 21 + 99 + 45


def test_times_of_requests_are_in_rocketmqs_buckets() -> None:
    times = PutTimes()
    assert requests_of(34) == NO_REQUESTS
    times.count(time.monotonic_ns() - 50 * MS, 3, requests_of(310))
    times.count(time.monotonic_ns() - 4_000 * MS, 0, requests_of(37))
    sends, ends = times.rpc_counts[1], times.rpc_counts[3]
    assert sum(sends) == sum(ends) == 1
    assert sends[:5] == [0] * 5 and ends[:9] == [0] * 9
    assert sum(times.counts) == 3
    assert times.rpc_sums_ns[1] >= 50 * MS


def sizes(series: Series) -> dict[str, int]:
    return {
        kind: int(of(series, "rocketmq_message_size_count", message_type=kind)) for kind in TYPES
    }


def requests(series: Series, code: str, *, waited: bool = False) -> int:
    labels = {"request_code": code, "is_long_polling": str(waited).lower()}
    return int(of(series, "rocketmq_rpc_latency_count", response_code="success", **labels))


@pytest.mark.parametrize("threads", [0, 1])
async def test_what_is_sent_and_ended_is_counted(tmp_path: Path, threads: int) -> None:
    async with congreve.serve(
        tmp_path, metricsPort=0, networkThreads=threads, flushDiskType="SYNC_FLUSH"
    ) as node:
        await produce(node.address)
        await read(node.address)
        series = await scrape(node.broker.config.metrics_port)
    assert sizes(series) == {"normal": 3 + 4 + 1, "fifo": 1, "delay": 2, "transaction": 2}
    small = of(series, "rocketmq_message_size_bucket", message_type="normal", le="1024")
    assert small == of(series, "rocketmq_message_size_bucket", message_type="normal", le="4096")
    assert small == 7
    assert of(series, "rocketmq_message_size_sum", message_type="normal") > 5_000
    assert of(series, "rocketmq_commit_messages_total") == 1
    assert of(series, "rocketmq_rollback_messages_total") == 1
    assert of(series, "rocketmq_finish_message_latency_count") == 1
    assert of(series, "rocketmq_delay_message_latency_bucket", le="3600") == 1
    assert of(series, "rocketmq_delay_message_latency_bucket", le="600") == 0
    # One-way requests, such as the ends of transactions, have no answer.
    assert requests(series, "send_message_v2") == 5 + 1 + 2
    assert requests(series, "send_batch_message") == 1
    # The first pull of a group waits until the group is on disk, and is not counted.
    assert requests(series, "pull_message") >= 2
    assert requests(series, "get_max_offset") >= 1


async def produce(namesrv: str) -> None:
    """Send messages of all types, and end two transactions."""
    outcomes = [TransactionState.COMMIT, TransactionState.ROLLBACK]

    async def decide(*_: object) -> TransactionState:
        return outcomes.pop()

    async with Producer(namesrv, group="p", compress_from=1 << 20) as producer:
        due_ms = int(time.time() * 1000) + 59 * MINUTE_MS
        for message in (
            Message(topic="T", body=b"x"),
            Message(topic="T", body=os.urandom(5_000)),
            Message(topic="T", body=b"o", properties={"__SHARDINGKEY": "1"}),
            Message(topic="T", body=b"d", delay_level=18),
            Message(topic="T", body=b"t", deliver_ms=due_ms),
        ):
            await producer.send(message)
        await producer.send_batch([Message(topic="T", body=b"b") for _ in range(4)])
        await producer.send_oneway(Message(topic="T", body=b"w"))
        await producer.send(Message(topic="T", body=b"after the one-way send"))
    async with TransactionProducer(namesrv, group="tp", check=decide) as producer:
        for _ in range(2):
            await producer.send_in_transaction(Message(topic="T", body=b"h"), decide)


async def read(namesrv: str) -> None:
    """Pull three times from a queue with messages."""
    async with PullConsumer(namesrv, group="readers") as consumer:
        for queue in await consumer.queues("T"):
            if await consumer.max_offset(queue):
                for _ in range(3):
                    assert (await consumer.pull(queue, 0)).messages
                return
