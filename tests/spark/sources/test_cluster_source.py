"""A live cluster read over the protocol: the same rows as from its broker's files."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from congreve.client.consumer.consumer import PullConsumer
from congreve.client.message import MessageQueue
from congreve.client.pull.bulk_reader import BulkReader
from congreve.remoting.errors import RequestTimeoutError
from congreve.spark.batch import BatchReader, RangePartition
from congreve.spark.errors import DataLossError, OptionError, UnreachableError
from congreve.spark.offsets import Queue, Range, from_json, to_json
from congreve.spark.options import parse
from congreve.spark.planning import open_source
from congreve.spark.schema import checked_schema, wanted_schema
from congreve.spark.sources.cluster_source import ClusterSource
from congreve.spark.sources.store_source import StoreSource
from congreve.spark.stream import StreamReader

from ..conftest import Cluster

TOPIC = "rows"
COUNT = 1200


@pytest.fixture(scope="module")
def filled(cluster: Cluster) -> Cluster:
    cluster.topic(TOPIC)
    cluster.send(TOPIC, range(COUNT))
    return cluster


def reader(cluster: Cluster, topic: str = TOPIC, **options: str) -> BatchReader:
    parsed = parse({"nameServer": cluster.address, "topic": topic, **options})
    return BatchReader(parsed, checked_schema(wanted_schema(parsed), parsed))


def rows(source: BatchReader) -> list[dict[str, Any]]:
    return [
        row
        for partition in source.partitions()
        for batch in source.read(partition)
        for row in batch.to_pylist()
    ]


@pytest.fixture
def source(filled: Cluster) -> Iterator[ClusterSource]:
    source = ClusterSource(parse({"nameServer": filled.address, "topic": TOPIC}))
    yield source
    source.close()


def files(cluster: Cluster) -> StoreSource:
    root = str(cluster.root / "store")
    return StoreSource(parse({"storePath": root, "topic": TOPIC, "brokerName": "broker-a"}))


def test_both_ways_give_the_same_rows(filled: Cluster) -> None:
    over_the_network = rows(reader(filled, pullBatchSize="100", readAhead="3"))
    parsed = parse(
        {"storePath": str(filled.root / "store"), "topic": TOPIC, "brokerName": "broker-a"}
    )
    by_files = rows(BatchReader(parsed, checked_schema(wanted_schema(parsed), parsed)))
    assert over_the_network == by_files
    assert len(by_files) == COUNT
    assert rows(reader(filled, pullBatchSize="100", maxPartitions="3")) == by_files


@pytest.mark.parametrize("options", [{"tags": "Tag3||Tag4"}, {"key": "order-77"}])
def test_filters_of_both_ways_pass_the_same_messages(
    filled: Cluster, options: dict[str, str]
) -> None:
    small = {"maxHashSlotNum": "100", "maxIndexNum": "1000"}
    parsed = parse(
        {
            **{"storePath": str(filled.root / "store"), "topic": TOPIC, **options, **small},
            "brokerName": "broker-a",
        }
    )
    by_files = rows(BatchReader(parsed, checked_schema(wanted_schema(parsed), parsed)))
    assert rows(reader(filled, **options, pullBatchSize="64")) == by_files != []


def test_both_ways_report_the_same_bounds_times_and_sizes(
    filled: Cluster, source: ClusterSource
) -> None:
    store = files(filled)
    assert source.queues(TOPIC) == store.queues(TOPIC)
    for queue in store.queues(TOPIC):
        low, high = store.bounds(queue)
        assert source.bounds(queue) == (low, high)
        assert source.size_of(queue, low, high) == store.size_of(queue, low, high)
        for limit in (1, 5_000, 10**9):
            assert source.stop_within(queue, low, high, limit) == store.stop_within(
                queue, low, high, limit
            )
        now = int(time.time() * 1000)
        for moment in (0, now - 500, now + 10_000):
            assert source.offset_from_time(queue, moment) == store.offset_from_time(queue, moment)


def test_a_range_is_complete_and_in_order_in_slices_of_any_size(filled: Cluster) -> None:
    reader_ = BulkReader(
        filled.broker.address,
        "tests",
        MessageQueue(topic=TOPIC, broker_name="broker-a", queue_id=1),
        batch=50,
        in_flight=5,
    )
    found = list(reader_.bodies(3, 290))
    reader_.close()
    assert [part.start for part in found] == sorted(part.start for part in found)
    assert (found[0].start, found[-1].stop) == (3, 290)


def test_the_first_slice_continues_when_no_other_may_wait(
    filled: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("congreve.client.pull.bulk_reader.BUFFERED_MAX", 0)
    whole = rows(reader(filled, pullBatchSize="64"))
    assert [row["queueOffset"] for row in whole] == [*range(300)] * 4


def test_a_read_waits_for_a_broker_that_restarts(filled: Cluster) -> None:
    source = reader(filled, pullBatchSize="32", readAhead="1")
    partition = source.partitions()[0]
    assert isinstance(partition, RangePartition)
    bulk = BulkReader(
        filled.broker.address,
        "tests",
        MessageQueue(topic=TOPIC, broker_name="broker-a", queue_id=0),
        batch=32,
        in_flight=1,
    )
    bodies = bulk.bodies(0, 300)
    found = [next(bodies)]
    filled.stop()
    filled.start()
    found += bodies
    bulk.close()
    assert [part.start for part in found] == list(range(0, 300, 32))


def test_expired_messages_of_a_cluster_are_an_error_or_skipped(
    filled: Cluster, source: ClusterSource
) -> None:
    part = Range(Queue(TOPIC, "broker-a", 0), 290, 310)
    strict = reader(filled)
    with pytest.raises(DataLossError, match=r"offsets 290 to 310 .* holds 0 to 300"):
        list(source.read(part, strict.scan()))
    lenient = reader(filled, failOnDataLoss="false")
    assert sum(batch.num_rows for batch in source.read(part, lenient.scan())) == 10


def test_the_error_names_an_unreachable_name_server_or_a_missing_topic(
    filled: Cluster, tmp_path: Path
) -> None:
    with pytest.raises(OptionError, match=r"option nameServer is '127.0.0.1:1'"):
        parsed = parse({"nameServer": "127.0.0.1:1", "topic": "T", "pullTimeoutMs": "300"})
        BatchReader(parsed, checked_schema(wanted_schema(parsed), parsed)).partitions()
    with pytest.raises(OptionError, match=r"option topic names topic 'Nothing', which does not"):
        reader(filled, "Nothing").partitions()
    broker = filled.broker.address
    with pytest.raises(OptionError, match=rf"option nameServer is '{broker}': .* is it a broker"):
        reader(filled, nameServer=broker).partitions()


def test_errors_for_invalid_names_name_the_option(filled: Cluster) -> None:
    with pytest.raises(OptionError, match=r"option group \(or groupIdPrefix\) is 'my group'"):
        reader(filled, group="my group").partitions()
    with pytest.raises(OptionError, match=r"option topic names topic 'two words'"):
        reader(filled, "two words").partitions()


def test_the_error_for_a_silent_broker_names_the_option(
    filled: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(*_: Any) -> int:
        raise RequestTimeoutError("no answer in time")

    monkeypatch.setattr(PullConsumer, "min_offset", silent)
    with pytest.raises(UnreachableError, match=rf"option nameServer is '{filled.address}': no ans"):
        reader(filled).partitions()


def test_a_task_waits_for_a_broker_that_went_away_after_the_plan(
    filled: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = reader(filled)
    partition = planned.partitions()[0]
    filled.stop()
    pauses = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        filled.start()

    monkeypatch.setattr("congreve.spark.retry.sleep", pause)
    assert sum(batch.num_rows for batch in planned.read(partition)) == COUNT // 4
    assert len(pauses) == 1


def test_a_stream_that_reports_its_progress_waits_for_an_unreachable_broker(
    filled: Cluster,
) -> None:
    options = parse({"nameServer": filled.address, "topic": TOPIC}, streaming=True)
    stream = StreamReader(options, checked_schema(wanted_schema(options), options))
    start = stream.initialOffset()
    assert stream.reportLatestOffset() == to_json(from_json(start))
    filled.stop()
    try:
        assert stream.reportLatestOffset() is None
    finally:
        filled.start()
    assert stream.reportLatestOffset() == to_json(from_json(start))
    stream.stop()


def test_a_stream_waits_for_an_unreachable_name_server(
    filled: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = parse(
        {"nameServer": filled.address, "topic": TOPIC, "startingOffsets": "earliest"},
        streaming=True,
    )
    stream = StreamReader(options, checked_schema(wanted_schema(options), options))
    start = stream.initialOffset()
    stream.stop()
    addresses = iter(["127.0.0.1:1", filled.address])
    monkeypatch.setattr(
        "congreve.spark.stream.open_source",
        lambda options: open_source(replace(options, name_server=next(addresses))),
    )
    monkeypatch.setattr("congreve.spark.retry.PAUSE_S", 0.01)
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    stream.stop()
    assert sum(end[TOPIC]["broker-a"].values()) == COUNT
    assert next(addresses, None) is None


def test_a_topic_of_a_stopped_broker_is_not_reported_as_missing(filled: Cluster) -> None:
    with pytest.raises(OptionError, match=r"'Nothing', .* Registered: broker-a; .* may be down"):
        reader(filled, "Nothing").partitions()
    filled.stop()
    try:
        with pytest.raises(OptionError, match=r"No broker is registered: the topic's broker may"):
            reader(filled).partitions()
    finally:
        filled.start()


def test_the_error_for_a_broker_that_dies_during_a_read_names_the_option(
    filled: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(address: str, *arguments: Any, **options: Any) -> BulkReader:
        return BulkReader("127.0.0.1:1", *arguments, **options, retry_s=0.1)

    read = reader(filled)
    partition = read.partitions()[0]
    monkeypatch.setattr("congreve.spark.sources.cluster_source.BulkReader", killed)
    with pytest.raises(OptionError, match=rf"option nameServer is '{filled.address}': 127.0.0.1:1"):
        list(read.read(partition))


def test_spark_reads_a_cluster(spark: Any, filled: Cluster) -> None:
    frame = (
        spark.read.format("rocketmq")
        .option("nameServer", filled.address)
        .option("subscribe", TOPIC)
        .option("columns", "tags,body")
        .load()
    )
    assert {row["tags"]: row["count"] for row in frame.groupBy("tags").count().collect()} == {
        f"Tag{i}": COUNT // 10 for i in range(10)
    }
