"""A union of a table and the live messages after it has each message once."""

from __future__ import annotations

import asyncio
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyiceberg")

import congreve
from congreve.base.clock import ManualClock
from congreve.client.admin import AdminClient
from congreve.client.message import MessageQueue
from congreve.engine.store import MessageStore
from congreve.lake.bodies.body_schema import load_schema
from congreve.lake.bodies.body_table import BodyTable
from congreve.lake.durable import SCHEMA, DurableTopic
from congreve.lake.export import Exporter
from congreve.lake.table import TopicTable, open_catalog
from congreve.lake.upkeep import Upkeep, UpkeepRules
from congreve.spark.batch import BatchReader
from congreve.spark.errors import DataLossError, OptionError
from congreve.spark.options import parse
from congreve.spark.schema import checked_schema, wanted_schema
from congreve.spark.union import union

from .stores import BEGIN_MS, open_store, put

EXPORTED, ALL = 1_000, 1_400
ROWS = "queueId, queueOffset, body"


def open_old(root: Path) -> MessageStore:
    """A store whose sealed segments retention may remove at once."""
    clock = ManualClock(BEGIN_MS + 1_000_000)
    return open_store(root, clock, file_reserved_time=0, delete_commit_log_files_interval=0)


def table_of(warehouse: Path) -> TopicTable:
    return TopicTable(open_catalog(str(warehouse)), "rocketmq.T", SCHEMA, "day")


def export(root: Path, warehouse: Path) -> None:
    topic = DurableTopic(root, "T", "broker-a")
    Exporter(topic, table_of(warehouse), commit_bytes=60_000).run()


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A table of 1,000 messages in merged and in small files, and a store that has the later ones
    of them, and 400 more."""
    root, warehouse = tmp_path_factory.mktemp("store"), tmp_path_factory.mktemp("lake")
    for first, stop in ((0, 700), (700, EXPORTED)):
        with open_old(root) as store:
            for number in range(first, stop):
                put(store, number)
        export(root, warehouse)
        if not first:
            Upkeep(table_of(warehouse), UpkeepRules()).merge()
    with open_old(root) as store:
        store._housekeeping._retention.request_manually()
        assert store._housekeeping.clean()
        low = [store.min_offset("T", queue) for queue in range(4)]
        for number in range(EXPORTED, ALL):
            put(store, number)
    assert all(0 < offset <= EXPORTED // 4 for offset in low), "log and table do not overlap"
    return {
        **{"storePath": str(root), "lake": str(warehouse), "brokerName": "broker-a", "topic": "T"},
        **{"maxHashSlotNum": "100", "maxIndexNum": "400"},
    }


def expected(numbers: range) -> list[tuple[int, int, bytes]]:
    return sorted((n % 4, n // 4, b"body %d" % n * 9) for n in numbers)


def found(frame: Any) -> list[tuple[int, int, bytes]]:
    rows = frame.selectExpr(*ROWS.split(", ")).collect()
    return sorted((row[0], row[1], bytes(row[2])) for row in rows)


def rows_of(options: dict[str, str]) -> list[dict[str, Any]]:
    """The rows of the tasks that the source plans, without Spark."""
    parsed = parse(options)
    reader = BatchReader(parsed, checked_schema(wanted_schema(parsed), parsed))
    parts = pickle.loads(pickle.dumps(reader.partitions()))
    return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


def test_a_table_of_a_deleted_topic_is_not_read_before_the_next(spark: Any, tmp_path: Path) -> None:
    root, warehouse = tmp_path / "store", tmp_path / "lake"
    with open_old(root) as store:
        for number in range(40):
            put(store, number)
    export(root, warehouse)
    places = {
        **{"storePath": str(root), "lake": str(warehouse), "brokerName": "broker-a", "topic": "T"},
    }
    assert found(union(spark, places)) == expected(range(40))
    with open_old(root) as store:
        store.delete_topic("T")
        for number in range(100, 180):
            put(store, number)
    with pytest.raises(DataLossError, match="deleted topic of this name"):
        union(spark, places)


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ({"columns": "body,queueOffset,queueId"}, range(ALL)),
        ({"startingTimestamp": str(BEGIN_MS + 60_000)}, range(600, ALL)),
        ({"endingTimestamp": str(BEGIN_MS + 120_000)}, range(1_200)),
    ],
)
def test_options_apply_on_both_sides_of_the_boundary(
    spark: Any, places: dict[str, str], options: dict[str, str], numbers: range
) -> None:
    assert found(union(spark, {**places, **options})) == expected(numbers)


def test_rows_of_the_table_are_those_of_the_log(spark: Any, places: dict[str, str]) -> None:
    live = {name: value for name, value in places.items() if name != "lake"}
    log = {row["commitLogOffset"]: row for row in rows_of(live)}
    table = union(spark, places).toArrow().to_pylist()
    both = [row for row in table if row["commitLogOffset"] in log]
    assert len(both) == len(log) > ALL - EXPORTED
    for row in both:
        assert row == log[row["commitLogOffset"]]


@pytest.mark.parametrize("streaming", [False, True])
def test_only_a_union_reads_a_table(places: dict[str, str], streaming: bool) -> None:
    with pytest.raises(OptionError, match=r"option lake is only for congreve\.spark\.union"):
        parse(places, streaming=streaming)


def test_live_messages_come_from_a_broker_too(
    spark: Any, places: dict[str, str], tmp_path: Path
) -> None:
    shutil.copytree(places["storePath"], tmp_path / "store")
    sizes = {"mappedFileSizeCommitLog": 64 << 10, "mappedFileSizeConsumeQueue": 20 * 64}
    with congreve.serve(
        tmp_path, brokerName="broker-a", fileReservedTime=1_000_000, **sizes
    ) as node:

        async def create_topic() -> None:
            async with AdminClient(node.address) as admin:
                await admin.create_topic("T", queues=4)

        asyncio.run(create_topic())
        options = {"nameServer": node.address, "lake": places["lake"], "topic": "T"}
        assert found(union(spark, options)) == expected(range(ALL))
        with node.producer("writers") as producer:
            for number in range(ALL, ALL + 8):
                queue = MessageQueue("T", "broker-a", number % 4)
                message = congreve.Message(topic="T", body=b"body %d" % number * 9, tags="new")
                producer.send(message, queue=queue)
        assert found(union(spark, options)) == expected(range(ALL + 8))


def test_a_union_reads_the_table_with_sparks_own_reader(spark: Any, places: dict[str, str]) -> None:
    frame = union(spark, places)
    plan = frame._jdf.queryExecution().toString()
    assert "FileScan parquet" in plan
    assert "Filter (" not in plan, "files that are read whole need no condition"
    assert "BatchScan rocketmq" not in plan, "the rest of a local store comes from a snapshot"
    assert found(frame) == expected(range(ALL))
    later = union(spark, {**places, "startingTimestamp": str(BEGIN_MS + 50_000), "columns": "all"})
    assert found(later) == expected(range(500, ALL))


def test_a_table_with_columns_of_bodies_has_each_message_once(
    spark: Any, places: dict[str, str], tmp_path: Path
) -> None:
    root, warehouse, schema = tmp_path / "store", tmp_path / "lake", tmp_path / "number.avsc"
    schema.write_text(
        '{"type":"record","name":"N","fields":[{"name":"n","type":"int"},'
        '{"name":"even","type":"boolean"}]}'
    )
    even = (b"true", b"false")
    bodies = [b'{"n":%d,"even":%s}' % (n, even[n % 2]) if n % 3 else b"no" for n in range(100)]
    wanted = sorted((n % 4, n // 4, body) for n, body in enumerate(bodies))
    table = BodyTable(table_of(warehouse), load_schema(f"json:{schema}"), "broker-a")
    with open_store(root) as store:
        for number in range(80):
            put(store, number, body=bodies[number])
    Exporter(DurableTopic(root, "T", "broker-a"), table, commit_bytes=1).run()
    with open_store(root) as store:
        for number in range(80, 100):
            put(store, number, body=bodies[number])
    both = {**places, "storePath": str(root), "lake": str(warehouse)}
    assert found(union(spark, both)) == wanted
    paths = [task.file.file_path for task in table.tables[0].iceberg.scan().plan_files()]
    columns = spark.read.parquet(*paths).where("even").selectExpr("sum(n)").collect()
    assert columns[0][0] == sum(n for n in range(0, 80, 2) if n % 3)


def test_messages_between_the_table_and_the_log_are_missed(
    spark: Any, places: dict[str, str], tmp_path: Path
) -> None:
    with open_old(tmp_path / "store") as store:
        for number in range(100):
            put(store, number)
    export(tmp_path / "store", tmp_path / "lake")
    gap = {**places, "lake": str(tmp_path / "lake")}
    with pytest.raises(DataLossError, match="ends at 25 in its table, and begins at"):
        union(spark, gap)
    assert found(union(spark, {**gap, "failOnDataLoss": "false"}))[0] == (0, 0, b"body 0" * 9)


def test_a_store_whose_broker_has_another_name_in_the_table_is_refused(
    spark: Any,
    places: dict[str, str],
) -> None:
    with pytest.raises(OptionError, match="the table of T has broker-a"):
        union(spark, {**places, "brokerName": "store"})
