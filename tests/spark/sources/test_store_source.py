"""Stores read without Spark: each row compared with 4.9.4's bytes, and the bytes not read."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import datasource as ds
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from congreve.records.record import decode_record
from congreve.spark.batch import BatchReader, PushdownReader, RangePartition
from congreve.spark.errors import DataLossError, OptionError, SchemaError, SparkError
from congreve.spark.options import parse
from congreve.spark.schema import checked_schema, wanted_schema
from congreve.spark.sources.store_source import StoreSource
from congreve.spark.stream import StreamReader

from ..stores import BEGIN_MS, TINY, open_store, put, write, write_tiny

SMALL = {"maxHashSlotNum": "100", "maxIndexNum": "400"}


def reader(root: Path, topic: str = "T", **options: str) -> BatchReader:
    parsed = parse({"storePath": str(root), "topic": topic, **options})
    kind = PushdownReader if parsed.pushdown else BatchReader
    return kind(parsed, checked_schema(wanted_schema(parsed), parsed))


def rows(source: BatchReader) -> list[dict[str, Any]]:
    return [
        row
        for partition in source.partitions()
        for batch in source.read(partition)
        for row in batch.to_pylist()
    ]


def touched(source: BatchReader) -> int:
    """Bytes of entries and records that planning and reading looked at."""
    store = StoreSource(source._options)
    for part in source.plan(store):
        for _ in store.read(part, source.scan()):
            pass
    return store.bytes_read


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("store"), 1000)


def test_a_store_of_4_9_4_reads_byte_for_byte(tmp_path: Path) -> None:
    found = rows(reader(write_tiny(tmp_path), "TopicTest", verifyCrc="true"))
    wanted = [message for message in TINY["messages"] if message["topic"] == "TopicTest"]
    assert len(found) == len(wanted) > 10
    wanted.sort(key=lambda message: (message["queueId"], message["queueOffset"]))
    for row, message in zip(found, wanted, strict=True):
        record = decode_record(bytes.fromhex(message["record_hex"]))
        assert row["body"] == bytes.fromhex(message["body_hex"])
        assert dict(row["properties"]) == record.properties
        assert (row["topic"], row["queueId"]) == (message["topic"], message["queueId"])
        assert (row["queueOffset"], row["commitLogOffset"]) == (
            message["queueOffset"],
            message["physOffset"],
        )
        assert (row["storeSize"], row["tagsCode"]) == (message["size"], message["tagsCode"])
        assert row["storeTimestamp"].timestamp() * 1000 == message["storeTimestamp"]
        assert row["_corrupt"] is None


def test_all_queues_and_segments_are_read_once_and_in_order(store: Path) -> None:
    found = rows(reader(store))
    assert [(row["queueId"], row["queueOffset"]) for row in found] == [
        (queue, offset) for queue in range(4) for offset in range(250)
    ]
    assert {row["body"] for row in found} == {b"body %d" % n * 9 for n in range(1000)}
    assert len(list((store / "commitlog").iterdir())) > 2


def test_a_schema_of_entries_never_opens_the_log(store: Path, tmp_path: Path) -> None:
    shutil.copytree(store / "consumequeue", tmp_path / "consumequeue")
    shutil.copytree(store / "commitlog", tmp_path / "commitlog")
    for segment in (tmp_path / "commitlog").iterdir():
        segment.write_bytes(bytes(64 << 10))
    found = rows(reader(tmp_path, columns="queueOffset,storeSize,tagsCode,topic"))
    assert len(found) == 1000
    assert found[0].keys() == {"queueOffset", "storeSize", "tagsCode", "topic"}


def test_metadata_columns_read_no_body(store: Path) -> None:
    bodies = sum(len(row["body"]) for row in rows(reader(store, columns="body")))
    everything = touched(reader(store))
    assert touched(reader(store, columns="metadata")) == everything - bodies
    assert touched(reader(store, columns="queueOffset,storeSize")) == 1000 * 20


def test_a_tag_filter_reads_only_entries_and_its_own_records(store: Path) -> None:
    found = rows(reader(store, tags="Tag3"))
    assert {row["tags"] for row in found} == {"Tag3"}
    assert len(found) == 100
    own = sum(row["storeSize"] for row in found)
    assert touched(reader(store, tags="Tag3")) == 1000 * 20 + own
    assert rows(reader(store, subExpression="Tag3 || Tag4", columns="tags")) != []
    assert rows(reader(store, tags="Tag33")) == []


def test_sql92_is_evaluated_over_the_files(store: Path) -> None:
    expression = "TAGS IN ('Tag3', 'Tag4') AND TAGS <> 'Tag4'"
    sql = {"expressionType": "SQL92", "subExpression": expression}
    with pytest.raises(OptionError, match=r"subExpression is 'TAGS ='.*line 1, column"):
        reader(store, expressionType="SQL92", subExpression="TAGS =")
    found = rows(reader(store, tags="Tag3"))
    assert rows(reader(store, **sql)) == found
    places = rows(reader(store, columns="queueOffset", **sql))
    assert [row["queueOffset"] for row in places] == [row["queueOffset"] for row in found]


def test_a_tag_filter_distinguishes_tags_with_equal_hashes(tmp_path: Path) -> None:
    from congreve.records.message.message import Record

    with open_store(tmp_path) as written:
        for tag in ("Aa", "BB", "Aa"):
            written.put(Record(topic="T", body=b"", properties={"TAGS": tag}))
    assert [row["tags"] for row in rows(reader(tmp_path, tags="Aa"))] == ["Aa", "Aa"]


def test_a_time_window_is_found_by_binary_search(store: Path) -> None:
    begin, end = BEGIN_MS + 40_000, BEGIN_MS + 41_000
    window = {"startingTimestamp": str(begin), "endingTimestamp": str(end)}
    found = rows(reader(store, **window))
    times = sorted(int(row["storeTimestamp"].timestamp() * 1000) for row in found)
    assert times == list(range(begin, end, 100))
    everything = touched(reader(store))
    # probes grow with the logarithm of the queue, rows with the window
    assert touched(reader(store, **window)) < everything / 5


def test_pushed_filters_exclude_ranges_before_reading(store: Path) -> None:
    moment = datetime.fromtimestamp((BEGIN_MS + 40_000) / 1000, UTC)
    pushed = reader(store, pushdown="true")
    assert isinstance(pushed, PushdownReader)
    filters = [
        ds.EqualTo(("tags",), "Tag1"),
        ds.In(("queueId",), (1, 2)),
        ds.GreaterThan(("queueOffset",), 20),
        ds.LessThanOrEqual(("queueOffset",), 220),
        ds.GreaterThanOrEqual(("storeTimestamp",), moment),
        ds.IsNotNull(("tags",)),
    ]
    assert list(pushed.pushFilters(filters)) == filters  # Spark filters again
    found = rows(pushed)
    wanted = [
        row
        for row in rows(reader(store))
        if row["tags"] == "Tag1"
        and row["queueId"] in (1, 2)
        and 20 < row["queueOffset"] <= 220
        and row["storeTimestamp"] >= moment
    ]
    assert found == wanted != []


def test_queues_and_offsets_outside_of_the_options_are_not_read(store: Path) -> None:
    pushed = reader(store, pushdown="true")
    assert isinstance(pushed, PushdownReader)
    list(
        pushed.pushFilters(
            [ds.EqualTo(("queueId",), 1), ds.GreaterThanOrEqual(("queueOffset",), 240)]
        )
    )
    found = rows(pushed)
    assert [(row["queueId"], row["queueOffset"]) for row in found] == [
        (1, offset) for offset in range(240, 250)
    ]
    assert touched(pushed) == 10 * 20 + sum(row["storeSize"] for row in found)


def test_a_plain_reader_has_no_push_filters() -> None:
    # Spark refuses every query of a reader that has, unless its conf allows it
    assert "pushFilters" not in vars(BatchReader)


def test_a_key_is_found_by_the_index(store: Path) -> None:
    found = rows(reader(store, key="order-777", **SMALL))
    assert [row["keys"] for row in found] == ["order-777 customer-0"]
    assert touched(reader(store, key="order-777", **SMALL)) < touched(reader(store)) / 10
    assert [row["keys"] for row in rows(reader(store, key="U00000003", **SMALL))] == [
        "order-3 customer-3"
    ]
    assert rows(reader(store, key="order-7777", **SMALL)) == []
    many = reader(store, key="customer-2", **SMALL)
    assert len(rows(many)) == 143
    assert len(many.partitions()) == 4, "a task for each of its messages"


def test_keys_that_the_index_lacks_are_found_by_reading(store: Path, tmp_path: Path) -> None:
    shutil.copytree(store, tmp_path / "s")
    files = sorted((tmp_path / "s" / "index").iterdir())
    assert len(files) > 2
    for path in files[-2:]:
        path.unlink()
    found = rows(reader(tmp_path / "s", key="customer-2", **SMALL))
    assert len(found) == 143
    assert len(rows(reader(tmp_path / "s", key="customer-2"))) == 143
    with pytest.raises(OptionError, match="maxHashSlotNum 7 and maxIndexNum 400"):
        rows(reader(store, key="order-1", maxHashSlotNum="7"))


def test_partitions_follow_the_options(store: Path) -> None:
    assert len(reader(store, maxPartitions="4").partitions()) == 4
    assert len(reader(store, minPartitions="10").partitions()) >= 10
    pieces = reader(store, maxRecordsPerPartition="60").partitions()
    assert all(
        isinstance(piece, RangePartition)
        and sum(part.stop - part.start for part in piece.parts) <= 60
        for piece in pieces
    )
    assert rows(reader(store, minPartitions="10")) == rows(reader(store))


@pytest.mark.parametrize("columns", ["queueId,queueOffset", "queueId,queueOffset,body,_corrupt"])
def test_several_queues_share_a_task(store: Path, columns: str) -> None:
    few = reader(store, maxPartitions="3", columns=columns)
    assert len(few.partitions()) == 3
    assert rows(few) == rows(reader(store, columns=columns))


def test_offsets_say_where_to_begin_and_end(store: Path) -> None:
    found = rows(
        reader(
            store,
            startingOffsets='{"T": {"store": {"0": 240, "1": -1, "2": -2, "3": 9}}}',
            endingOffsets='{"T": {"store": {"2": 5, "3": 10}}}',
            columns="queueId,queueOffset",
        )
    )
    assert [tuple(row.values()) for row in found] == [
        *((0, offset) for offset in range(240, 250)),
        *((2, offset) for offset in range(5)),
        (3, 9),
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": "Nothing"}, "option topic names topic 'Nothing', which does not exist; .* T"),
        ({"topic": None, "subscribe": "T,U"}, "option subscribe names topic 'U', which does not"),
        ({"topic": None, "assign": '{"U": [0]}'}, "option assign names topic 'U', which does not"),
        (
            {"startingOffsets": '{"T": {"store": {"0": 251}}}'},
            "startingOffsets asks for offset 251 of queue 0 of topic T on store, which has 0 to",
        ),
        ({"startingOffsets": '{"T": {"other": {"0": 1}}}'}, "names queue 0 of topic T on other"),
        ({"startingOffsets": '{"T": {"store": {"9": 1}}}'}, "names queue 9 of topic T"),
        (
            {"topic": None, "assign": '{"T": [0, 7]}'},
            "option assign names queue 7 of topic T; there are queue 0",
        ),
        (
            {
                "startingOffsets": '{"T": {"store": {"0": 9}}}',
                "endingOffsets": '{"T": {"store": {"0": 3}}}',
            },
            "the wrong way round",
        ),
        ({"columns": "body,bodie"}, "option columns is 'body,bodie': column 'bodie' is unknown"),
        (
            {"startingTimestamp": "99999999999999", "startingOffsetsByTimestampStrategy": "error"},
            "option startingTimestamp is 99999999999999: .* holds no message stored since",
        ),
    ],
)
def test_invalid_options_are_errors_before_tasks_start(
    store: Path, options: dict[str, str | None], message: str
) -> None:
    given = {"storePath": str(store), "topic": "T", **options}
    with pytest.raises((OptionError, DataLossError), match=message):
        parsed = parse({name: value for name, value in given.items() if value is not None})
        BatchReader(parsed, checked_schema(wanted_schema(parsed), parsed)).partitions()


def test_an_unsupported_schema_is_refused() -> None:
    options = parse({"storePath": "s", "topic": "T"})
    with pytest.raises(SchemaError, match="column 'value' is unknown"):
        checked_schema(StructType([StructField("value", BinaryType())]), options)
    with pytest.raises(SchemaError, match="column body is binary, the schema asks for string"):
        checked_schema(StructType([StructField("body", StringType())]), options)


def test_the_error_names_a_missing_store_or_log(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"option storePath is .*nowhere.*is not a store"):
        reader(tmp_path / "nowhere").partitions()


def test_a_torn_tail_is_an_error_or_a_row(store: Path, tmp_path: Path) -> None:
    shutil.copytree(store, tmp_path / "s")
    last = max((tmp_path / "s" / "commitlog").iterdir())
    whole = rows(reader(store, columns="commitLogOffset,storeSize"))
    end = max(row["commitLogOffset"] + row["storeSize"] for row in whole) - int(last.name)
    with last.open("r+b") as file:
        file.truncate(end - 10)  # in the middle of the last record
    error = r"option storePath is '.*': queue 3 of topic T on store: .* no record.*_corrupt"
    with pytest.raises(SparkError, match=error):
        reader(tmp_path / "s").partitions()  # before a task starts
    assert len(rows(reader(tmp_path / "s", columns="queueOffset,storeSize"))) == 1000
    parsed = parse(
        {"storePath": str(tmp_path / "s"), "topic": "T", "startingOffsets": "earliest"},
        streaming=True,
    )
    stream = StreamReader(parsed, checked_schema(wanted_schema(parsed), parsed))
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    with pytest.raises(SparkError, match=error):
        stream.partitions(stream.initialOffset(), end)
    found = rows(reader(tmp_path / "s", columns="queueOffset,body,_corrupt"))
    assert [row["queueOffset"] for row in found if row["_corrupt"]] == [249]
    assert [row["body"] for row in found if row["_corrupt"]] == [None]
    assert len(found) == 1000


def test_a_damaged_body_is_reported_with_verify_crc(store: Path, tmp_path: Path) -> None:
    shutil.copytree(store, tmp_path / "s")
    first = min((tmp_path / "s" / "commitlog").iterdir())
    data = bytearray(first.read_bytes())
    data[data.index(b"body 0")] ^= 1
    first.write_bytes(data)
    assert len(rows(reader(tmp_path / "s"))) == 1000
    found = rows(reader(tmp_path / "s", verifyCrc="true"))
    assert [row["_corrupt"] for row in found if row["_corrupt"]] == ["the body's CRC is wrong"]
    with pytest.raises(SparkError, match="the body's CRC is wrong"):
        rows(reader(tmp_path / "s", verifyCrc="true", columns="body"))


def test_foreign_files_are_skipped_or_reported(store: Path, tmp_path: Path) -> None:
    shutil.copytree(store, tmp_path / "s")
    (tmp_path / "s" / "commitlog" / "notes.txt").write_text("x")
    (tmp_path / "s" / "consumequeue" / "T" / "0" / "notes.txt").write_text("x")
    (tmp_path / "s" / "consumequeue" / "T" / "old").mkdir()
    assert len(rows(reader(tmp_path / "s"))) == 1000
    (tmp_path / "s" / "commitlog" / ("0" * 19 + "9")).write_text("x")
    with pytest.raises(OptionError, match=r"0{19}9 .*: one of them is not a segment of this log"):
        reader(tmp_path / "s").partitions()


@pytest.mark.parametrize(
    ("name", "content"), [("0" * 20, "no queue"), ("0" * 19 + "7", "x" * 1280), ("9" * 20, "x")]
)
def test_a_foreign_file_in_the_folder_of_a_queue_is_reported(
    store: Path, tmp_path: Path, name: str, content: str
) -> None:
    shutil.copytree(store / "consumequeue", tmp_path / "consumequeue")
    (tmp_path / "commitlog").symlink_to(store / "commitlog")
    (tmp_path / "consumequeue" / "T" / "2" / name).write_text(content)
    with pytest.raises(OptionError, match=r"option storePath is .*: .*not a file of this queue"):
        reader(tmp_path).partitions()


def test_expired_segments_are_an_error_or_skipped(store: Path, tmp_path: Path) -> None:
    shutil.copytree(store, tmp_path / "s")
    partitions = reader(tmp_path / "s", maxPartitions="4").partitions()
    min((tmp_path / "s" / "commitlog").iterdir()).unlink()
    with pytest.raises(DataLossError, match=r"queue 0 .*offsets 0 to 250 .*failOnDataLoss=false"):
        list(reader(tmp_path / "s").read(partitions[0]))
    rest = list(reader(tmp_path / "s", failOnDataLoss="false").read(partitions[0]))
    assert 0 < sum(batch.num_rows for batch in rest) < 250
    assert len(rows(reader(tmp_path / "s"))) == sum(  # a new plan begins where the log begins
        batch.num_rows
        for partition in partitions
        for batch in reader(tmp_path / "s", failOnDataLoss="false").read(partition)
    )


def test_a_store_is_read_while_a_broker_writes_to_it(tmp_path: Path) -> None:
    with open_store(tmp_path) as written:
        for number in range(100):
            put(written, number)
        source = reader(tmp_path)
        partitions = source.partitions()
        for number in range(100, 700):
            put(written, number)
        found = [
            row for part in partitions for batch in source.read(part) for row in batch.to_pylist()
        ]
        assert len(found) == 100
        assert len(rows(source)) == 700
