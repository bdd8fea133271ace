"""Rows as messages: each arrives with all its columns; an error names a row that is not a
message."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from congreve.spark.batch import BatchReader
from congreve.spark.errors import OptionError, SendError
from congreve.spark.options import parse
from congreve.spark.schema import checked_schema, wanted_schema
from congreve.spark.sink import send_all, sink_options

from .conftest import Cluster


def read(spark: Any, cluster: Cluster, topic: str) -> Any:
    return (
        spark.read.format("rocketmq")
        .option("nameServer", cluster.address)
        .option("topic", topic)
        .load()
    )


def test_every_column_of_a_row_arrives(spark: Any, cluster: Cluster) -> None:
    cluster.topic("out")
    cluster.topic("later")
    rows = [
        (b"one", "out", "A", "k1", {"x": "1", "UNIQ_KEY": "kept by the client"}, 0, 3),
        (b"two", None, None, None, None, None, None),
        (b"three", "out", "B", "k2 k3", {}, 0, 0),
    ]
    frame = spark.createDataFrame(
        rows,
        "body binary, topic string, tags string, keys string, properties map<string,string>, "
        "delayLevel int, queueId int",
    )
    target = frame.write.format("rocketmq").option("nameServer", cluster.address)
    target.option("topic", "later").mode("append").save()
    found = {bytes(row["body"]): row for row in read(spark, cluster, "out").collect()}
    assert found.keys() == {b"one", b"three"}
    one = found[b"one"]
    assert (one["tags"], one["keys"], one["queueId"]) == ("A", "k1", 3)
    assert one["properties"]["x"] == "1"
    assert one["msgId"] != "kept by the client"
    assert found[b"three"]["queueId"] == 0
    (two,) = read(spark, cluster, "later").collect()
    assert (bytes(two["body"]), two["tags"], two["keys"]) == (b"two", None, None)


def test_a_delayed_row_is_stored_under_its_level(cluster: Cluster) -> None:
    cluster.topic("delayed")
    batch = pa.RecordBatch.from_pylist([{"body": b"x", "delayLevel": 18, "topic": "delayed"}])
    options = sink_options({"nameServer": cluster.address})
    assert send_all(iter([batch]), options).messages == 1
    assert cluster.broker.store.max_offset("SCHEDULE_TOPIC_XXXX", 17) == 1
    # this broker has no 20: it takes its highest, as 4.9.4 does
    more = sink_options({"nameServer": cluster.address, "maxDelayLevel": "20"})
    beyond = pa.RecordBatch.from_pylist([{"body": b"y", "delayLevel": 20, "topic": "delayed"}])
    assert send_all(iter([beyond]), more).messages == 1
    assert cluster.broker.store.max_offset("SCHEDULE_TOPIC_XXXX", 17) == 2


def test_a_stream_of_rows_is_sent_once_without_failures(
    spark: Any, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.topic("from")
    cluster.topic("to")
    cluster.send("from", range(300))
    query = (
        spark.readStream.format("rocketmq")
        .option("nameServer", cluster.address)
        .option("topic", "from")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "200")
        .load()
        .selectExpr("body", "tags", "keys", "properties")
        .writeStream.format("rocketmq")
        .option("nameServer", cluster.address)
        .option("topic", "to")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    copies = read(spark, cluster, "to").select("body", "tags", "keys", "properties.n").collect()
    assert sorted(int(row["n"]) for row in copies) == list(range(300))
    assert all(row["tags"] == f"Tag{int(row['n']) % 10}" for row in copies)
    assert all(int(bytes(row["body"]).split()[0]) == int(row["n"]) for row in copies)


def test_rows_arrive_at_least_once_over_a_restart_of_the_broker(cluster: Cluster) -> None:
    cluster.topic("restarted")
    options = sink_options({"nameServer": cluster.address, "topic": "restarted"})
    restarts = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal restarts
        for first in range(0, 2000, 500):
            yield pa.RecordBatch.from_pylist(
                [{"body": b"%d" % n, "queueId": n % 4} for n in range(first, first + 500)]
            )
            if first == 500:
                cluster.stop()
                cluster.start()
                restarts += 1

    assert send_all(batches(), options).messages == 2000
    parsed = parse({"nameServer": cluster.address, "topic": "restarted"})
    reader = BatchReader(parsed, checked_schema(wanted_schema(parsed), parsed))
    rows = [row for part in reader.partitions() for b in reader.read(part) for row in b.to_pylist()]
    assert restarts == 1
    assert {int(row["body"]) for row in rows} == set(range(2000))
    assert all(int(row["body"]) % 4 == row["queueId"] for row in rows)


def test_the_error_for_an_invalid_row_names_it(cluster: Cluster) -> None:
    options = sink_options({"nameServer": cluster.address})
    for row, message in [
        ({"body": None, "topic": "out"}, "row 0 for topic out has no body"),
        ({"body": b"x", "topic": None}, "row 0 has no topic"),
        ({"body": b"x", "topic": "out", "properties": "{"}, "row 0: properties '{' are not a JSON"),
        ({"body": b"x", "topic": "out", "properties": "[1]"}, r"row 0: properties '\[1\]' are no"),
        ({"body": b"x", "topic": "out", "brokerName": "b"}, "out has no queue to write to on b"),
        ({"body": b"x", "topic": "a b"}, "a b"),
        ({"body": b"x", "topic": "out", "queueId": 99}, "topic out has no queue 99"),
        ({"body": b"x", "topic": "out", "delayLevel": 77}, "row 0: column delayLevel is 77: .* 18"),
        ({"body": b"x", "topic": "out", "delayLevel": -1}, "row 0: column delayLevel is -1"),
    ]:
        with pytest.raises(SendError, match=message):
            send_all(iter([pa.RecordBatch.from_pylist([row])]), options)


def test_an_unsendable_schema_is_an_error_before_tasks_start(spark: Any, cluster: Cluster) -> None:
    frame = spark.range(1)
    for columns, options, message in [
        ("id AS body", {"topic": "out"}, "column body is bigint"),
        ("'x' AS value", {"topic": "out"}, "no column 'value' can be sent"),
        ("'x' AS tags", {"topic": "out"}, "a column body is required"),
        ("'x' AS body", {}, "option topic or a column topic is required"),
        ("'x' AS body", {"topic": "out", "tag": "A"}, "option tag is unknown"),
        ("'x' AS body", {"topic": "out", "sendTimeoutMs": "soon"}, "sendTimeoutMs is 'soon'"),
        ("'x' AS body", {"topic": "out", "maxDelayLevel": "0"}, "maxDelayLevel is '0'"),
        (
            "'x' AS body",
            {"topic": "out", "nameServer": "127.0.0.1:1", "sendTimeoutMs": "300"},
            "option nameServer is '127.0.0.1:1'",
        ),
        ("'x' AS body", {"topic": "a b"}, "option topic is 'a b'"),
        ("'x' AS body", {"topic": "out", "group": "a b"}, "option group is 'a b'"),
        (
            "'x' AS body",
            {"topic": "out", "nameServer": cluster.broker.address},
            f"option nameServer is '{cluster.broker.address}'",
        ),
    ]:
        target = frame.selectExpr(columns).write.format("rocketmq").mode("append")
        with pytest.raises(PySparkException, match=message):
            target.options(**{"nameServer": cluster.address, **options}).save()
    with pytest.raises(OptionError, match="option nameServer"):
        sink_options({})
