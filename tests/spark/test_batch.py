"""Queries of a Spark user, run by Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkFiles
from pyspark.errors import PySparkException
from pyspark.sql.functions import count, max_by

from congreve.engine.store_files.files import StoreFiles
from congreve.records.record import decode_record
from congreve.spark.errors import OptionError
from congreve.spark.snapshot import snapshot

from .stores import BEGIN_MS, write


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("store"), 1000)


def read(spark: Any, store: Path, **options: str) -> Any:
    return (
        spark.read.format("rocketmq")
        .option("storePath", str(store))
        .option("topic", "T")
        .options(**options)
    )


def test_spark_finds_the_source_and_returns_the_documented_columns(spark: Any, store: Path) -> None:
    frame = read(spark, store).load()
    assert frame.columns[:9] == [
        *("topic", "flag", "body", "properties", "brokerName"),
        *("queueId", "queueOffset", "bornTimestamp", "storeTimestamp"),
    ]
    assert frame.columns[9:] == [
        *("tags", "keys", "msgId", "offsetMsgId", "commitLogOffset", "storeSize", "tagsCode"),
        *("sysFlag", "bodyCRC", "reconsumeTimes", "bornHost", "storeHost"),
    ]
    assert frame.schema["properties"].dataType.simpleString() == "map<string,string>"
    assert frame.count() == 1000


def test_rows_equal_those_of_an_ordinary_dataframe(spark: Any, store: Path) -> None:
    files = StoreFiles(store)
    own = []
    for queue_id in files.queues("T"):
        queue = files.queue("T", queue_id)
        for entry in queue.entries(queue.min_offset, queue.max_offset):
            record = decode_record(files.record(int(entry["physical_offset"]), int(entry["size"])))
            own.append(
                (record.topic, record.queue_id, record.queue_offset, bytearray(record.body),
                 record.properties, record.properties["TAGS"], record.body_crc)
            )  # fmt: skip
    names = "topic,queueId,queueOffset,body,properties,tags,bodyCRC"
    frame = read(spark, store, columns=names).load()
    wanted = spark.createDataFrame(own, frame.schema)
    order = ["queueId", "queueOffset"]
    assert frame.sort(order).collect() == wanted.sort(order).collect()


def test_a_schema_of_the_user_reads_only_its_columns(spark: Any, store: Path) -> None:
    frame = read(spark, store).schema("tags string, queueOffset bigint").load()
    counts = {row["tags"]: row["n"] for row in frame.groupBy("tags").agg(count("*").alias("n"))
              .collect()}  # fmt: skip
    assert counts == {f"Tag{i}": 100 for i in range(10)}


def test_there_are_no_more_tasks_than_requested(spark: Any, store: Path) -> None:
    frame = read(spark, store, columns="queueId,queueOffset", maxPartitions="2").load()
    assert frame.rdd.getNumPartitions() == 2
    assert frame.distinct().count() == 1000


def test_a_snapshot_has_the_rows_of_the_source(spark: Any, store: Path, tmp_path: Path) -> None:
    options = {"storePath": str(store), "topic": "T", "tags": "Tag3"}
    frame = snapshot(spark, options)
    assert all(SparkFiles.getRootDirectory() in file for file in frame.inputFiles()), (
        "Spark removes them if this process is killed"
    )
    source = read(spark, store, tags="Tag3").load()
    assert frame.schema.simpleString() == source.schema.simpleString()
    rows, wanted = (
        sorted(each.collect(), key=lambda row: row.commitLogOffset) for each in (frame, source)
    )
    assert rows == wanted and len(rows) == 100
    assert snapshot(spark, {**options, "tags": "Nothing"}).collect() == []
    snapshot(spark, {**options, "propertiesFormat": "json", "columns": "body"}, tmp_path)
    assert any(tmp_path.glob("*.parquet")), "the caller's folder has the files"
    for refused in ({"nameServer": "127.0.0.1:1", "storePath": ""}, {"pushdown": "true"}):
        given = {name: value for name, value in {**options, **refused}.items() if value}
        with pytest.raises(OptionError, match="a snapshot"):
            snapshot(spark, given)


def test_sql_queries_a_view_over_a_store(spark: Any, store: Path) -> None:
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW messages USING rocketmq "
        f"OPTIONS (storePath '{store}', subscribePattern 'T|X', propertiesFormat 'json')"
    )
    found = spark.sql(
        "SELECT keys, get_json_object(properties, '$.UNIQ_KEY') AS id FROM messages "
        "WHERE tags = 'Tag7' ORDER BY storeTimestamp LIMIT 1"
    ).collect()
    assert [tuple(row) for row in found] == [("order-7 customer-0", "U00000007")]


def test_sparks_filters_reach_the_source_and_change_no_row(spark: Any, store: Path) -> None:
    condition = (
        f"tags IN ('Tag1', 'Tag2') AND queueOffset > 100 AND queueId = 1 "
        f"AND storeTimestamp < timestamp_millis({BEGIN_MS + 80_000})"
    )
    plain = read(spark, store).load().filter(condition)
    pushed = read(spark, store, pushdown="true").load().filter(condition)
    assert sorted(map(str, plain.collect())) == sorted(map(str, pushed.collect()))
    assert plain.count() > 0
    newest = pushed.agg(max_by("keys", "storeTimestamp")).first()[0]
    assert newest == "order-781 customer-4"


def test_two_pushed_filters_of_one_query_keep_their_rows_with_a_load_for_each(
    spark: Any, store: Path
) -> None:
    tags = [read(spark, store, pushdown="true", columns="tags").load() for _ in range(2)]
    both = tags[0].filter("tags = 'Tag1'").union(tags[1].filter("tags = 'Tag2'"))
    assert {row["tags"] for row in both.distinct().collect()} == {"Tag1", "Tag2"}


def test_timestamps_are_those_of_the_store(spark: Any, store: Path) -> None:
    row = (
        read(spark, store, columns="storeTimestamp,bornTimestamp")
        .load()
        .selectExpr("min(unix_millis(storeTimestamp))", "max(unix_millis(bornTimestamp))")
        .first()
    )
    assert tuple(row) == (BEGIN_MS, BEGIN_MS + 99_900 - 5)


@pytest.mark.parametrize(
    ("options", "schema", "message"),
    [
        ({"topic": "X"}, None, "option topic names topic 'X', which does not exist; there are T"),
        ({"storePath": "nowhere"}, None, "option storePath is 'nowhere'"),
        ({"maxRecordsPerPartition": "-1"}, None, "option maxRecordsPerPartition is '-1'"),
        ({}, "value binary", "column 'value' is unknown"),
        ({}, "body string", "column body is binary, the schema asks for string"),
        (
            {"startingOffsets": '{"T": {"store": {"0": 999}}}'},
            None,
            "startingOffsets asks for offset 999",
        ),
    ],
)
def test_an_error_names_the_option_before_tasks_start(
    spark: Any, store: Path, options: dict[str, str], schema: str | None, message: str
) -> None:
    jobs = len(spark.sparkContext.statusTracker().getJobIdsForGroup())
    reader = read(spark, store, **options)
    if schema is not None:
        reader = reader.schema(schema)
    with pytest.raises(PySparkException, match=message):
        reader.load().count()
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup()) == jobs
