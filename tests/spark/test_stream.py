"""Streams: every message once across restarts and limits, with new queues and expired messages."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from congreve.engine.store import MessageStore
from congreve.spark.batch import RangePartition
from congreve.spark.errors import DataLossError, OptionError
from congreve.spark.offsets import from_json, to_json
from congreve.spark.options import parse
from congreve.spark.schema import checked_schema, wanted_schema
from congreve.spark.stream import StreamReader

from .conftest import Cluster
from .stores import open_store, put


def stream_reader(where: Path | str, **options: str) -> StreamReader:
    """A reader of a store's folder, or of the cluster of a name server's address."""
    way = {"storePath": str(where)} if isinstance(where, Path) else {"nameServer": where}
    given = {**way, "startingOffsets": "earliest", "topic": "T", **options}
    if "subscribePattern" in given or "subscribe" in given:
        del given["topic"]
    parsed = parse(given, streaming=True)
    return StreamReader(parsed, checked_schema(wanted_schema(parsed), parsed))


def rows(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        row
        for partition in reader.partitions(start, end)
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


def total(offsets: dict[str, Any]) -> int:
    return sum(from_json(offsets).values())


def test_a_limit_of_rows_is_met_exactly_and_shared_by_the_queues(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for number in range(900):
            put(store, number)
        reader = stream_reader(tmp_path, maxOffsetsPerTrigger="100")
        limit = reader.getDefaultReadLimit()
        assert limit == ReadMaxRows(100)
        offsets, taken = reader.initialOffset(), []
        for _ in range(9):
            end = reader.latestOffset(offsets, limit)
            batch = rows(reader, offsets, end)
            assert len(batch) == 100
            assert {row["queueId"] for row in batch} == {0, 1, 2, 3}
            taken += batch
            offsets = end
        assert reader.latestOffset(offsets, limit) == offsets
        assert {row["body"] for row in taken} == {b"body %d" % n * 9 for n in range(900)}
        for number in range(900, 907):
            put(store, number)
        end = reader.latestOffset(offsets, limit)
        assert len(rows(reader, offsets, end)) == 7


def test_a_limit_of_bytes_is_used_up_and_never_exceeded(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for number in range(500):
            put(store, number)
    reader = stream_reader(tmp_path, maxBytesPerTrigger="10000")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxBytes(10_000)
    offsets, count = reader.initialOffset(), 0
    while (end := reader.latestOffset(offsets, limit)) != offsets:
        sizes = [row["storeSize"] for row in rows(reader, offsets, end)]
        assert sum(sizes) <= 10_000
        assert sum(sizes) > 10_000 - 4 * max(sizes) or count + len(sizes) == 500
        count += len(sizes)
        offsets = end
    assert count == 500
    tiny = stream_reader(tmp_path, maxBytesPerTrigger="1")
    start = tiny.initialOffset()
    assert total(tiny.latestOffset(start, ReadMaxBytes(1))) == total(start) + 1


def test_new_queues_and_topics_are_read_from_their_beginning(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for number in range(10):
            put(store, number, queues=2)
        reader = stream_reader(tmp_path, subscribePattern="T.*")
        everything = ReadAllAvailable()
        offsets = reader.latestOffset(reader.initialOffset(), everything)
        for number in range(10, 30):
            put(store, number, queues=4)
            put(store, number, queues=1, topic="T2")
        taken: list[dict[str, Any]] = []
        for _ in range(3):
            end = reader.latestOffset(offsets, everything)
            taken += rows(reader, offsets, end)
            offsets = end
        assert len(taken) == 40
        assert {(row["topic"], row["queueId"]) for row in taken} == {
            *(("T", i) for i in range(4)),
            ("T2", 0),
        }


def test_a_pattern_without_a_match_yet_loses_no_message_of_the_first_topic(
    tmp_path: Path,
) -> None:
    with open_store(tmp_path) as store:
        put(store, 0, topic="Other")
        reader = stream_reader(tmp_path, subscribePattern="T.*", startingOffsets="latest")
        start = reader.initialOffset()
        assert start == {} == reader.latestOffset(start, ReadAllAvailable())
        for number in range(20):
            put(store, number)
        noted = reader.latestOffset(start, ReadAllAvailable())
        end = reader.latestOffset(noted, ReadAllAvailable())
        assert len(rows(reader, start, noted) + rows(reader, noted, end)) == 20


def test_available_now_ends_at_the_offsets_of_its_start(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for number in range(40):
            put(store, number)
        reader = stream_reader(tmp_path)
        offsets = reader.initialOffset()
        reader.prepareForTriggerAvailableNow()
        for number in range(40, 80):
            put(store, number)
        end = reader.latestOffset(offsets, ReadAllAvailable())
        assert len(rows(reader, offsets, end)) == 40
        assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_expired_messages_are_skipped_or_counted_in_an_error(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for number in range(1000):
            put(store, number)
    reader = stream_reader(tmp_path)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    min((tmp_path / "commitlog").iterdir()).unlink()
    with pytest.raises(DataLossError, match=r"queue \d .* read from 0 on, .*\d+ messages are gone"):
        reader.latestOffset(start, ReadAllAvailable())
    with pytest.raises(DataLossError, match="failOnDataLoss=false"):
        rows(reader, start, end)
    lenient = stream_reader(tmp_path, failOnDataLoss="false")
    assert from_json(lenient.latestOffset(start, ReadAllAvailable())) == from_json(end)
    assert 0 < len(rows(lenient, start, end)) < 1000


def make_again(store: MessageStore, messages: int) -> None:
    """Delete the topic, and fill it with messages of a later time."""
    store.delete_topic("T")
    for number in range(1000, 1000 + messages):
        put(store, number, queues=1)


def test_a_topic_that_was_made_again_stops_a_stream(tmp_path: Path) -> None:
    everything = ReadAllAvailable()
    with open_store(tmp_path) as store:
        for number in range(10):
            put(store, number, queues=1)
        first = stream_reader(tmp_path)
        start = first.initialOffset()
        offsets = first.latestOffset(start, everything)
        assert len(rows(first, start, offsets)) == 10
        make_again(store, 10)
        assert first.latestOffset(offsets, everything) == offsets, "there is nothing to read"
        with pytest.raises(DataLossError, match="created again"):
            rows(stream_reader(tmp_path), start, offsets)
        make_again(store, 30)
        for reader in (first, stream_reader(tmp_path)):
            with pytest.raises(DataLossError, match="created again"):
                reader.latestOffset(offsets, everything)
        lenient = stream_reader(tmp_path, failOnDataLoss="false")
        assert len(rows(lenient, offsets, lenient.latestOffset(offsets, everything))) == 20


def test_a_checkpoint_of_an_earlier_version_gets_what_names_its_messages(tmp_path: Path) -> None:
    everything = ReadAllAvailable()
    with open_store(tmp_path) as store:
        for number in range(10):
            put(store, number, queues=1)
        reader = stream_reader(tmp_path)
        now = reader.latestOffset(reader.initialOffset(), everything)
        earlier = to_json(from_json(now))
        assert "#last" in now and "#last" not in earlier
        assert reader.latestOffset(earlier, everything) == now
        make_again(store, 30)
        with pytest.raises(DataLossError, match="created again"):
            reader.latestOffset(now, everything)


def test_a_missing_topic_stops_a_stream_before_it_starts(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put(store, 0)
    with pytest.raises(OptionError, match="topic 'X'"):
        stream_reader(tmp_path, subscribe="X").initialOffset()
    # one of several may come later
    assert stream_reader(tmp_path, subscribe="X,T").initialOffset() != {}


def test_partitions_of_a_micro_batch_follow_the_options(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for number in range(40):
            put(store, number)
    reader = stream_reader(tmp_path, minPartitions="8")
    start = reader.initialOffset()
    parts = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    assert len(parts) == 8
    assert all(isinstance(part, RangePartition) for part in parts)
    few = stream_reader(tmp_path, maxPartitions="3")
    end = few.latestOffset(start, ReadAllAvailable())
    assert len(few.partitions(start, end)) == 3
    assert rows(few, start, end) == rows(reader, start, end)


def test_new_queues_and_topics_of_a_cluster_are_read_from_their_beginning(
    cluster: Cluster,
) -> None:
    cluster.topic("grows", queues=2)
    cluster.send("grows", range(20))
    reader = stream_reader(cluster.address, subscribePattern="grow.*")
    everything = ReadAllAvailable()
    start = reader.initialOffset()
    offsets = reader.latestOffset(start, everything)
    taken = rows(reader, start, offsets)
    cluster.topic("grows", queues=4)
    cluster.topic("grown")
    cluster.send("grows", range(20, 60))
    cluster.send("grown", range(60, 80))
    for _ in range(3):
        end = reader.latestOffset(offsets, everything)
        taken += rows(reader, offsets, end)
        offsets = end
    reader.stop()
    assert sorted(int(row["keys"].split("-")[1]) for row in taken) == list(range(80))
    assert {(row["topic"], row["queueId"]) for row in taken} == {
        (topic, queue) for topic in ("grows", "grown") for queue in range(4)
    }


def test_messages_expired_by_a_broker_are_skipped_or_counted_in_an_error(
    cluster: Cluster,
) -> None:
    cluster.topic("expires")
    cluster.send("expires", range(800), size=400)
    reader = stream_reader(cluster.address, topic="expires")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    reader.stop()
    cluster.stop()
    log = cluster.root / "store" / "commitlog"
    for segment in sorted(log.iterdir())[:-3]:
        segment.unlink()
    cluster.start()
    with pytest.raises(DataLossError, match=r"queue \d .* read from 0 on, .*\d+ messages are gone"):
        reader.latestOffset(start, ReadAllAvailable())
    with pytest.raises(DataLossError, match="failOnDataLoss=false"):
        rows(reader, start, end)
    lenient = stream_reader(cluster.address, topic="expires", failOnDataLoss="false")
    assert from_json(lenient.latestOffset(start, ReadAllAvailable())) == from_json(end)
    left = rows(lenient, start, end)
    assert 0 < len(left) < 800
    assert max(int(row["keys"].split("-")[1]) for row in left) == 799
    reader.stop()
    lenient.stop()


def query(spark: Any, cluster: Cluster, topic: str, out: Path, **options: str) -> Any:
    given = {
        **{"nameServer": cluster.address, "topic": topic, "startingOffsets": "earliest"},
        **{"columns": "queueId,queueOffset,body"},
        **options,
    }
    return (
        spark.readStream.format("rocketmq")
        .options(**given)
        .load()
        .writeStream.format("parquet")
        .option("path", str(out / "rows"))
        .option("checkpointLocation", str(out / "checkpoint"))
    )


def numbers(spark: Any, out: Path) -> list[int]:
    bodies = spark.read.parquet(str(out / "rows")).select("body").collect()
    return sorted(int(bytes(row["body"]).split()[0]) for row in bodies)


def test_a_query_resumes_exactly_and_commits_its_group(
    spark: Any, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.topic("resumed")
    cluster.send("resumed", range(100))
    group = {"group": "spark-group", "commitOffsetsToGroup": "true"}
    first = query(spark, cluster, "resumed", tmp_path, maxOffsetsPerTrigger="60", **group)
    first.trigger(availableNow=True).start().awaitTermination(120)
    assert numbers(spark, tmp_path) == list(range(100))
    cluster.send("resumed", range(100, 150))
    second = query(spark, cluster, "resumed", tmp_path, **group)
    second.trigger(availableNow=True).start().awaitTermination(120)
    assert numbers(spark, tmp_path) == list(range(150))
    assert sum(cluster.committed("spark-group", "resumed")) == 150


def test_an_interrupted_micro_batch_is_repeated_unchanged(spark: Any, tmp_path: Path) -> None:
    root, checkpoint = tmp_path / "store", tmp_path / "checkpoint"
    taken: dict[int, list[list[int]]] = {}

    def take(frame: Any, batch: int) -> None:
        found = frame.select("commitLogOffset").collect()
        taken.setdefault(batch, []).append(sorted(row[0] for row in found))

    def run() -> None:
        messages = spark.readStream.format("rocketmq").options(
            storePath=str(root), topic="T", startingOffsets="earliest", maxOffsetsPerTrigger="70"
        )
        running = messages.load().writeStream.foreachBatch(take)
        running.option("checkpointLocation", str(checkpoint)).trigger(
            availableNow=True
        ).start().awaitTermination(120)

    with open_store(root) as store:
        for number in range(100):
            put(store, number)
        run()
        assert [len(batches[0]) for batches in taken.values()] == [70, 30]
        # as after a crash between the batch's end and its note of it
        for name in ("1", ".1.crc"):
            (checkpoint / "commits" / name).unlink()
        for number in range(100, 130):
            put(store, number)
        run()
    assert taken[1][0] == taken[1][1]
    assert sum(len(batches[-1]) for batches in taken.values()) == 130


def test_a_query_from_the_latest_offsets_reads_only_new_messages(
    spark: Any, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.topic("latest")
    cluster.send("latest", range(30))
    running = query(spark, cluster, "latest", tmp_path, startingOffsets="latest").start()
    try:
        running.processAllAvailable()
        cluster.send("latest", range(30, 50))
        running.processAllAvailable()
    finally:
        running.stop()
    assert numbers(spark, tmp_path) == list(range(30, 50))


def test_a_running_query_survives_a_restart_of_its_broker(
    spark: Any, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.topic("outlived")
    cluster.send("outlived", range(20))
    running = query(spark, cluster, "outlived", tmp_path).start()
    try:
        running.processAllAvailable()
        cluster.stop()
        starter = threading.Timer(2, cluster.start)
        starter.start()
        starter.join()
        cluster.send("outlived", range(20, 50))
        running.processAllAvailable()
    finally:
        running.stop()
    assert numbers(spark, tmp_path) == list(range(50))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "option storePath is 'nowhere'"),
        ({"endingTimestamp": "5"}, "a stream has no end"),
    ],
)
def test_the_error_of_a_stream_that_cannot_start_names_the_option(
    spark: Any, tmp_path: Path, options: dict[str, str], message: str
) -> None:
    with pytest.raises(PySparkException, match=message) as refused:
        (
            spark.readStream.format("rocketmq")
            .options(storePath="nowhere", topic="T", **options)
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path))
            .start()
            .awaitTermination(60)
        )
    assert "UnboundLocalError" not in str(refused.value)
