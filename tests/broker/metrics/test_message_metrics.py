"""RocketMQ 5's histograms and counts: sizes by type, times of requests, delays, transactions."""

import os
import time
from pathlib import Path

import congreve
from congreve.base.steps import at_once
from congreve.broker.config import BrokerConfig
from congreve.broker.figures.message_counts import SIZE_BOUNDS, TYPES, TopicCounts
from congreve.broker.figures.put_times import NO_REQUESTS, PutTimes, requests_of
from congreve.broker.metrics.exposition import text_steps
from congreve.broker.metrics.figures import Figures, TopicFigures
from congreve.broker.metrics.native_names import NativeNames
from congreve.client import Message, Producer, PullConsumer, TransactionProducer, TransactionState

from .scrapes import Series, of, parsed, scrape

MS = 1_000_000
MINUTE_MS = 60_000
WAIT_S = 0.2


def test_a_histogram_counts_values_on_a_bound_below_it() -> None:
    counts = TopicCounts()
    for size in (0, 1 << 10, (1 << 10) + 1, 1 << 22, (1 << 22) + 1):
        counts.count_sent("fifo", 1, size)
    counts.count_sent("fifo", 3, 3 * 2_000)
    assert counts.sizes["fifo"] == ([2, 4, 0, 0, 0, 1, 1], 2 * 1025 - 1 + 2 * (1 << 22) + 1 + 6_000)
    assert counts.sizes.keys() == {"fifo"}
    assert counts.commits is counts.delays is None
    for seconds in (5, 6, 100_000):
        counts.count_commit(seconds)
    assert counts.commits == ([1, 1, 0, 0, 0, 0, 1], 100_011)
    counts.count_delay(60)
    assert counts.delays == ([1, 0, 0, 0, 0, 0, 0], 60)
    counts.count_rollback()
    assert counts.rollbacks == 1


def test_topics_without_a_row_are_counted_together() -> None:
    counts = {name: TopicCounts() for name in "ABC"}
    for number, each in enumerate(counts.values()):
        each.count_sent("normal", number + 1, 100 * (number + 1))
        each.count_rollback()
    figures = Figures([TopicFigures("A"), TopicFigures("other")], [], 3, folded=2)
    families = NativeNames(BrokerConfig()).of_messages(figures, counts)
    series = parsed(b"".join(at_once(text_steps(families, open_metrics=False))).decode())
    for topic, messages, rollbacks in (("A", 1, 1), ("other", 5, 2)):
        labels = {"topic": topic, "message_type": "normal"}
        assert of(series, "rocketmq_message_size_count", **labels) == messages
        assert of(series, "rocketmq_message_size_bucket", le="1024", **labels) == messages
        assert of(series, "rocketmq_message_size_sum", **labels) == 100 * messages
        assert of(series, "rocketmq_rollback_messages_total", topic=topic) == rollbacks
    assert len(series) == 2 * (len(SIZE_BOUNDS) + 3) + 2


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


def requests(series: Series, code: str, *, waited: bool = False, answered: str = "success") -> int:
    labels = {"request_code": code, "is_long_polling": str(waited).lower()}
    return int(of(series, "rocketmq_rpc_latency_count", response_code=answered, **labels))


async def test_what_is_sent_and_ended_is_counted(tmp_path: Path) -> None:
    async with congreve.serve(tmp_path, metricsPort=0, flushDiskType="SYNC_FLUSH") as node:
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
    assert requests(series, "pull_message") >= 2
    assert requests(series, "pull_message", waited=True, answered="pull_not_found") == 1
    waited = {"is_long_polling": "true", "response_code": "pull_not_found"}
    assert of(series, "rocketmq_rpc_latency_sum", **waited) >= WAIT_S * 1000
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
    """Pull three times from a queue with messages, then once from its end."""
    async with PullConsumer(namesrv, group="readers") as consumer:
        for queue in await consumer.queues("T"):
            if await consumer.max_offset(queue):
                for _ in range(3):
                    assert (await consumer.pull(queue, 0)).messages
                end = await consumer.max_offset(queue)
                assert not (await consumer.pull(queue, end, wait_s=WAIT_S)).messages
                return
