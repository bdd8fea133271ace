"""Handles of popped messages, and the texts of their offsets, are those of RocketMQ 5."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from congreve.records.errors import RecordError
from congreve.records.message import pop_offsets
from congreve.records.message.pop_handle import ORDERED_REVIVE_QUEUE_ID, PopHandle, PoppedFrom
from congreve.records.message.pop_offsets import PoppedMessage, PoppedQueue
from congreve.records.message.topics import pop_retry_topic, pop_retry_topic_v2
from congreve.records.record import decode_records

VECTORS = json.loads((Path(__file__).parents[2] / "golden/pop_vectors.json").read_text())["vectors"]
TOPIC, RETRY, RETRY_V2 = PoppedFrom

kinds = st.sampled_from(PoppedFrom)
ints = st.integers(0, 2**31 - 1)
longs = st.integers(0, 2**63 - 1)
queues = st.builds(PoppedQueue, kinds, ints)
messages = st.builds(PoppedMessage, kinds, ints, longs)


def test_handles_of_rocketmq_are_read_and_written_again() -> None:
    handles = [
        v["extFields"]["extraInfo"] for v in VECTORS if "extraInfo" in v.get("extFields", ())
    ]
    assert handles
    assert [PopHandle.decode(each).encode() for each in handles] == handles
    assert PopHandle.decode("5 1795638471435 60000 999 1 broker-a 2 7") == PopHandle(
        5, 1795638471435, 60000, ORDERED_REVIVE_QUEUE_ID, RETRY, "broker-a", 2, 7
    )


def test_offset_texts_of_rocketmq_are_read_and_written_again() -> None:
    answers = [v["response"].get("extFields") or {} for v in VECTORS]
    starts = {a["startOffsetInfo"] for a in answers if "startOffsetInfo" in a}
    offsets = {a["msgOffsetInfo"] for a in answers if "msgOffsetInfo" in a}
    assert {"", "1 0 0", "0 0 2"} <= starts and {"", "0 0 0,1,2,3"} <= offsets
    for text in starts | {"0 3 100;1 0 7"}:
        assert pop_offsets.encode_start_offsets(pop_offsets.decode_start_offsets(text)) == text
    for text in offsets | {"0 3 100,101,105;2 0 7"}:
        assert pop_offsets.encode_message_offsets(pop_offsets.decode_message_offsets(text)) == text
    for text in ("", "0 0 0", "0 qo0%0 1;0 qo0%1 1;0 0 1"):
        assert pop_offsets.encode_order_counts(pop_offsets.decode_order_counts(text)) == text


def test_what_is_popped_again_has_the_handle_that_rocketmq_put_into_its_record() -> None:
    [answer] = [v["response"] for v in VECTORS if v["name"] == "pop/redelivered after the change"]
    [record] = decode_records(bytes.fromhex(answer["body_hex"]))
    handle = PopHandle.decode(record.properties["POP_CK"])
    fields = answer["extFields"]
    assert handle.kind is RETRY and handle.queue_id == 0 and handle.offset == 0
    assert str(handle.pop_ms) == fields["popTime"]
    queue = PoppedQueue(handle.kind, handle.queue_id)
    assert pop_offsets.decode_start_offsets(fields["startOffsetInfo"]) == {
        queue: handle.start_offset
    }
    assert handle.kind.topic("GP4", record.topic) == "%RETRY%GP4_P4"


def test_the_kind_of_a_popped_topic_follows_its_name() -> None:
    assert [
        PoppedFrom.of(topic)
        for topic in ("T", pop_retry_topic("g", "T"), pop_retry_topic_v2("g", "T"), "a+b")
    ] == [TOPIC, RETRY, RETRY_V2, TOPIC]
    assert [kind.topic("g", "T") for kind in PoppedFrom] == ["T", "%RETRY%g_T", "%RETRY%g+T"]


@given(
    st.builds(
        PopHandle,
        longs,
        longs,
        longs,
        ints,
        kinds,
        st.from_regex(r"[^ ]+", fullmatch=True),
        ints,
        longs,
    )
)
def test_a_handle_is_read_as_it_was_written(handle: PopHandle) -> None:
    assert PopHandle.decode(handle.encode()) == handle


@given(st.dictionaries(queues, longs))
def test_start_offsets_are_read_as_they_were_written(starts: dict[PoppedQueue, int]) -> None:
    assert pop_offsets.decode_start_offsets(pop_offsets.encode_start_offsets(starts)) == starts


@given(st.dictionaries(queues, st.lists(longs, min_size=1)))
def test_message_offsets_are_read_as_they_were_written(
    offsets: dict[PoppedQueue, list[int]],
) -> None:
    text = pop_offsets.encode_message_offsets(offsets)
    assert pop_offsets.decode_message_offsets(text) == offsets


@given(st.dictionaries(st.one_of(queues, messages), ints))
def test_order_counts_are_read_as_they_were_written(
    counts: dict[PoppedQueue | PoppedMessage, int],
) -> None:
    assert pop_offsets.decode_order_counts(pop_offsets.encode_order_counts(counts)) == counts


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0 1 2 3 0 b 0",
        "x 1 2 3 0 b 0 0",
        "0 1 2 3 3 b 0 0",
        "0 1 2 3 00 b 0 0",
        "0 1 2 9999999999 0 b 0 0",
        "0 99999999999999999999 2 3 0 b 0 0",
    ],
)
def test_what_is_not_a_handle_is_refused(text: str) -> None:
    with pytest.raises(RecordError):
        PopHandle.decode(text)


@pytest.mark.parametrize("text", ["0 1", "0 1 2;", "0 1 2;0 1 3", "3 1 2", "0 x 2", "0 1 x"])
def test_what_is_not_an_offset_text_is_refused(text: str) -> None:
    for decode in (
        pop_offsets.decode_start_offsets,
        pop_offsets.decode_message_offsets,
        pop_offsets.decode_order_counts,
    ):
        with pytest.raises(RecordError):
            decode(text)
