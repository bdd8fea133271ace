"""Each option over files and over the network, in batches and in streams: the same rows."""

from __future__ import annotations

import json
import re
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from congreve.spark.batch import BatchReader
from congreve.spark.errors import OptionError
from congreve.spark.options import NAMES, parse
from congreve.spark.schema import checked_schema, wanted_schema
from congreve.spark.stream import StreamReader

from .conftest import Cluster

TOPIC = "ways"
COUNT = 400
INDEX = {"maxHashSlotNum": "100", "maxIndexNum": "1000"}
DOCS = Path(__file__).parents[2] / "docs" / "spark.md"

Row = dict[str, Any]


@pytest.fixture(scope="module")
def filled(cluster: Cluster) -> Cluster:
    cluster.topic(TOPIC)
    cluster.send(TOPIC, range(COUNT))
    return cluster


@pytest.fixture(params=["storePath", "nameServer"])
def way(request: pytest.FixtureRequest, filled: Cluster) -> dict[str, str]:
    if request.param == "nameServer":
        return {"nameServer": filled.address}
    return {"storePath": str(filled.root / "store"), "brokerName": "broker-a", **INDEX}


def options_of(way: dict[str, str], options: dict[str, str], *, streaming: bool) -> Any:
    topic = {} if {"subscribe", "subscribePattern", "assign"} & options.keys() else {"topic": TOPIC}
    parsed = parse({**way, **topic, **options}, streaming=streaming)
    return parsed, checked_schema(wanted_schema(parsed), parsed)


def batch(way: dict[str, str], **options: str) -> list[Row]:
    reader = BatchReader(*options_of(way, options, streaming=False))
    return [row for part in reader.partitions() for b in reader.read(part) for row in b.to_pylist()]


def streamed(way: dict[str, str], **options: str) -> list[Row]:
    """All messages, in micro-batches with the limits of the options."""
    if not any(name.startswith("starting") for name in options):
        options["startingOffsets"] = "earliest"
    reader = StreamReader(*options_of(way, options, streaming=True))
    start, found = reader.initialOffset(), []
    try:
        while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
            for part in reader.partitions(start, end):
                found += [row for b in reader.read(part) for row in b.to_pylist()]
            start = end
    finally:
        reader.stop()
    return found


def numbers(rows: list[Row]) -> list[int]:
    return sorted(int(dict(row["properties"])["n"]) for row in rows)


EVERYTHING = list(range(COUNT))
OF_QUEUES_1_AND_3 = [n for n in EVERYTHING if n % 4 in (1, 3)]
CASES: list[tuple[dict[str, str], list[int]]] = [
    ({}, EVERYTHING),
    ({"subscribe": f"{TOPIC}, {TOPIC}"}, EVERYTHING),
    ({"subscribePattern": "w.y[s]"}, EVERYTHING),
    ({"assign": json.dumps({TOPIC: [1, 3]})}, OF_QUEUES_1_AND_3),
    ({"assign": json.dumps({TOPIC: {"broker-a": [1, 3]}})}, OF_QUEUES_1_AND_3),
    ({"tags": "Tag3"}, EVERYTHING[3::10]),
    ({"subExpression": "Tag3 || Tag5"}, sorted(EVERYTHING[3::10] + EVERYTHING[5::10])),
    (
        {"subExpression": "n BETWEEN 100 AND 199 AND TAGS <> 'Tag3'", "expressionType": "SQL92"},
        [n for n in range(100, 200) if n % 10 != 3],
    ),
    ({"subExpression": "none IS NULL AND n < 5", "expressionType": "SQL92"}, EVERYTHING[:5]),
    ({"subExpression": "none = 1 OR NOT (n > 3)", "expressionType": "SQL92"}, EVERYTHING[:4]),
    ({"minPartitions": "9"}, EVERYTHING),
    ({"maxRecordsPerPartition": "17"}, EVERYTHING),
    ({"failOnDataLoss": "false"}, EVERYTHING),
    ({"verifyCrc": "true"}, EVERYTHING),
    ({"decompressBody": "false"}, EVERYTHING),
    ({"pullBatchSize": "7", "readAhead": "3", "pullTimeoutMs": "5000"}, EVERYTHING),
    ({"group": "ways-group"}, EVERYTHING),
    ({"groupIdPrefix": "ways-"}, EVERYTHING),
    ({"maxOffsetsPerTrigger": "150"}, EVERYTHING),
    ({"maxBytesPerTrigger": "20000"}, EVERYTHING),
    ({"maxOffsetsPerTrigger": "150", "maxBytesPerTrigger": "20000"}, EVERYTHING),
    ({"startingTimestamp": "1"}, EVERYTHING),
    ({"startingOffsetsByTimestamp": json.dumps({TOPIC: {"broker-a": {"0": 1}}})}, EVERYTHING),
    (
        {
            "startingOffsets": json.dumps(
                {TOPIC: {"broker-a": {"0": 90, "1": -1, "2": -1, "3": 99}}}
            )
        },
        sorted([*[n for n in EVERYTHING if n % 4 == 0][90:], 399]),
    ),
]


@pytest.mark.parametrize(("options", "wanted"), CASES, ids=lambda case: str(case)[:60])
def test_options_have_the_same_meaning_in_batches_and_streams(
    way: dict[str, str], options: dict[str, str], wanted: list[int]
) -> None:
    found = batch(way, **options)
    assert numbers(found) == wanted
    again = streamed(way, **options)
    if not {"maxOffsetsPerTrigger", "maxBytesPerTrigger"} & options.keys():
        assert again == found
    place = itemgetter("queueId", "queueOffset")
    assert sorted(again, key=place) == sorted(found, key=place)


def test_both_ways_end_alike_by_offset_by_time_and_by_queue(way: dict[str, str]) -> None:
    everything = batch(way)
    times = [int(row["storeTimestamp"].timestamp() * 1000) for row in everything]
    middle = sorted(times)[len(times) // 2]
    before = [row for row, time in zip(everything, times, strict=True) if time < middle]
    assert batch(way, endingTimestamp=str(middle)) == before
    behind = [row for row in everything if row not in before]
    assert batch(way, startingTimestamp=str(middle)) == behind
    assert streamed(way, startingTimestamp=str(middle)) == behind
    of_queue_0 = json.dumps({TOPIC: {"broker-a": {"0": middle}}})
    assert batch(way, endingOffsetsByTimestamp=of_queue_0) == [
        row for row in everything if row["queueId"] or row in before
    ]
    ends = json.dumps({TOPIC: {"broker-a": {"0": 3, "1": -2, "2": -1}}})
    found = batch(way, endingOffsets=ends)
    assert [sum(row["queueId"] == q for row in found) for q in range(4)] == [3, 0, 100, 100]
    late = {"startingTimestamp": str(max(times) + 1)}
    assert batch(way, **late) == streamed(way, **late) == []
    for read in (batch, streamed):
        with pytest.raises(
            OptionError, match=r"startingTimestamp is \d+: .* no message stored since"
        ):
            read(way, startingOffsetsByTimestampStrategy="error", **late)


def test_both_ways_have_the_same_columns_and_forms(way: dict[str, str]) -> None:
    for read in (batch, streamed):
        rows = read(way, columns="tags,queueOffset", tags="Tag4")
        assert [row.keys() for row in rows] == [{"tags", "queueOffset"}] * (COUNT // 10)
        (row,) = (r for r in read(way, propertiesFormat="json") if r["keys"] == "order-7")
        assert json.loads(row["properties"])["n"] == "7"
        assert list(read(way, columns="rocketmq-spark")[0]) == list(row)[:9]


def test_a_key_is_looked_up_only_in_batches(way: dict[str, str]) -> None:
    (row,) = batch(way, key="order-77")
    assert batch(way, key=row["msgId"]) == [row]
    assert batch(way, key="order-77777") == []
    with pytest.raises(OptionError, match="option key is 'order-77': only batches"):
        streamed(way, key="order-77")
    with pytest.raises(OptionError, match="option pushdown is 'true': only batches"):
        streamed(way, pushdown="true")


def test_a_micro_batch_is_filled_up_to_its_limit_of_bytes(way: dict[str, str]) -> None:
    limit = 10_000
    sizes = {(row["queueId"], row["queueOffset"]): row["storeSize"] for row in batch(way)}
    reader = StreamReader(*options_of(way, {"maxBytesPerTrigger": str(limit),
                                            "startingOffsets": "earliest"},
                                      streaming=True))  # fmt: skip
    start, taken = reader.initialOffset(), 0
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        begins, ends = start[TOPIC]["broker-a"], end[TOPIC]["broker-a"]
        own = [(int(q), o) for q in ends for o in range(begins[q], ends[q])]
        spent = sum(sizes[place] for place in own)
        assert spent <= limit
        following = [sizes[int(q), o] for q, o in ends.items() if (int(q), o) in sizes]
        assert all(spent + size > limit for size in following)
        taken += len(own)
        start = end
    reader.stop()
    assert taken == COUNT


def test_an_error_names_a_broker_without_sql92_before_tasks_start(filled: Cluster) -> None:
    way = {"nameServer": filled.address}
    sql = {"subExpression": "n > 3", "expressionType": "SQL92"}
    filled.broker.config.enable_property_filter = False
    try:
        for read in (batch, streamed):
            with pytest.raises(
                OptionError, match=r"subExpression is 'n > 3': broker broker-a .*SQL"
            ):
                read(way, **sql)
    finally:
        filled.broker.config.enable_property_filter = True


def test_the_documentation_names_each_option_of_the_source() -> None:
    (text,) = re.findall(r"^## Options\n(.*?)^## ", DOCS.read_text(), re.MULTILINE | re.DOTALL)
    first = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| `")]
    documented = {name for cell in first for name in re.findall(r"`(\w+)`", cell)}
    assert documented | {"storePath", "nameServer"} == set(NAMES)
