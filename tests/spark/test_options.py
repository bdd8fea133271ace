"""An invalid option is an error with its name and value before anything starts."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from congreve.spark import planning
from congreve.spark.errors import OptionError
from congreve.spark.offsets import Queue, Range, from_json, to_json
from congreve.spark.options import parse
from congreve.spark.planning import RECORDS_OF_TASK, cut, tasks

GOOD = {"storePath": "s", "topic": "T"}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"storePath": ""}, "option storePath is empty"),
        ({"nameServer": "h:1"}, "storePath .* and nameServer .* not both"),
        ({"topic": "T", "subscribe": "A"}, "options topic and subscribe exclude each other"),
        ({"subscribePattern": "(", "topic": None}, r"option subscribePattern is '\('"),
        ({"subscribe": " , ", "topic": None}, "option subscribe is ','"),
        ({"assign": "[1", "topic": None}, r"option assign is '\[1': not JSON"),
        ({"assign": '{"T": 3}', "topic": None}, "option assign is"),
        ({"topic": None}, "one of topic, subscribe, subscribePattern and assign is needed"),
        ({"startingOffest": "earliest"}, "option startingOffest is unknown"),
        (
            {"startingOffsets": "first"},
            "option startingOffsets is 'first': neither earliest nor latest",
        ),
        ({"startingOffsets": '{"T": 4}'}, 'option startingOffsets is .*write {"topic"'),
        ({"startingOffsets": '{"T": {"b": {"0": -3}}}'}, "option startingOffsets is"),
        ({"startingOffsets": "latest"}, "startingOffsets 'latest' reads nothing in a batch"),
        ({"startingTimestamp": "today"}, "option startingTimestamp is 'today'"),
        ({"startingTimestamp": "1", "startingOffsets": "earliest"}, "exclude each other"),
        ({"endingOffsets": "earliest"}, "endingOffsets 'earliest' reads nothing"),
        ({"minPartitions": "0"}, "option minPartitions is '0'"),
        ({"maxPartitions": "0"}, "option maxPartitions is '0'"),
        (
            {"minPartitions": "8", "maxPartitions": "7"},
            "option minPartitions is 8, maxPartitions 7: it must be 8 or more",
        ),
        ({"maxRecordsPerPartition": "many"}, "option maxRecordsPerPartition is 'many'"),
        ({"verifyCrc": "yes"}, "option verifyCrc is 'yes': it must be true or false"),
        ({"propertiesFormat": "xml"}, "option propertiesFormat is 'xml'"),
        ({"tags": "A||"}, r"option tags is 'A\|\|'"),
        ({"expressionType": "SQL92"}, "option subExpression is missing"),
        (
            {"expressionType": "SQL92", "subExpression": "a >"},
            "subExpression is 'a >': unexpected end",
        ),
        ({"commitOffsetsToGroup": "true"}, "name the group in option group"),
        ({"commitOffsetsToGroup": "true", "group": "g"}, "needs nameServer"),
        (
            {"storePath": None, "nameServer": "h:1", "commitOffsetsToGroup": "true", "group": "g"},
            "only a stream commits offsets",
        ),
    ],
)
def test_the_error_for_an_invalid_option_gives_its_value(
    wrong: dict[str, str | None], message: str
) -> None:
    options = {name: value for name, value in {**GOOD, **wrong}.items() if value is not None}
    with pytest.raises(OptionError, match=message):
        parse(options)


def test_option_names_are_case_insensitive() -> None:
    options = parse({"STOREPATH": "s", "subscribe": "A, B,A", "subexpression": "x || y"})
    assert options.selection.topics == ("A", "B")
    assert options.filter.tags == ("x", "y")


def test_a_stream_has_no_end() -> None:
    with pytest.raises(OptionError, match="a stream has no end"):
        parse({**GOOD, "endingTimestamp": "5"}, streaming=True)


QUEUES = st.builds(Queue, st.sampled_from("AB"), st.sampled_from(["b1", "b2"]), st.integers(0, 9))


@given(st.dictionaries(QUEUES, st.integers(0, 2**62)))
def test_offsets_survive_a_checkpoint(offsets: dict[Queue, int]) -> None:
    assert from_json(to_json(offsets)) == offsets


@given(
    st.lists(st.integers(1, 1000), min_size=1, max_size=5), st.integers(0, 20), st.integers(0, 300)
)
def test_partitions_hold_each_message_once(
    sizes: list[int], min_partitions: int, max_records: int
) -> None:
    ranges = [Range(Queue("T", "b", i), 7, 7 + size) for i, size in enumerate(sizes)]
    pieces = cut(ranges, min_partitions, max_records)
    for queue, start, stop in ranges:
        own = [piece for piece in pieces if piece.queue == queue]
        assert [own[0].start, own[-1].stop] == [start, stop]
        assert all(a.stop == b.start for a, b in pairwise(own))
    assert all(piece.start < piece.stop for piece in pieces)
    assert not max_records or max(piece.stop - piece.start for piece in pieces) <= max_records
    assert len(pieces) >= min(min_partitions, sum(sizes))


@pytest.mark.parametrize(
    ("size", "options", "wanted"),
    [
        (10, {}, 4),
        (RECORDS_OF_TASK, {}, 9),
        (10, {"minPartitions": "6"}, 6),
        (10, {"maxRecordsPerPartition": "2"}, 45),
        (10, {"storePath": "", "nameServer": "127.0.0.1:9876"}, 9),
    ],
)
def test_small_queues_of_files_share_tasks(
    monkeypatch: pytest.MonkeyPatch, size: int, options: dict[str, str], wanted: int
) -> None:
    monkeypatch.setattr(planning, "cores", lambda: 4)
    ranges = [Range(Queue("T", "b", i), 0, size) for i in range(9)]
    given = {name: value for name, value in {**GOOD, **options}.items() if value}
    assert len(tasks(ranges, parse(given))) == wanted


@given(
    st.lists(st.integers(1, 1000), min_size=1, max_size=30),
    st.integers(1, 40),
    st.integers(0, 40),
    st.integers(0, 300),
)
def test_few_tasks_of_similar_size_hold_each_message_once(
    sizes: list[int], most: int, least: int, max_records: int
) -> None:
    ranges = [Range(Queue("T", "b", i), 7, 7 + size) for i, size in enumerate(sizes)]
    wanted = {"maxPartitions": most, "minPartitions": min(least, most)}
    wanted["maxRecordsPerPartition"] = max_records
    options = parse({**GOOD, **{name: str(number) for name, number in wanted.items() if number}})
    found = tasks(ranges, options)
    pieces = [piece for task in found for piece in task]
    for queue, start, stop in ranges:
        own = [piece for piece in pieces if piece.queue == queue]
        assert [own[0].start, own[-1].stop] == [start, stop]
        assert all(a.stop == b.start for a, b in pairwise(own))
    assert all(piece.start < piece.stop for piece in pieces)
    messages = [sum(stop - start for _, start, stop in task) for task in found]
    # The limit of records takes precedence over that of tasks.
    bound = max(most, -(-sum(sizes) // max_records)) if max_records else most
    assert min(least, most, sum(sizes)) <= len(found) <= bound
    assert not max_records or max(messages) <= max_records
    if any(len(task) > 1 for task in found):
        assert max(messages) - min(messages) <= 1
