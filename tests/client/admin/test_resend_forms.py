"""Compiled code puts letters into batches; they equal those that Python sends one by one."""

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from congreve.client.admin.offset_ranges import offsets_of, ranges_of
from congreve.client.admin.resend import (
    BATCH_BYTES,
    DELIVERY_PROPERTIES,
    LARGE_BODY,
    plain_message,
    resend_ids,
)
from congreve.client.message import Message, MessageQueue, ReceivedMessage
from congreve.client.outgoing import prepare
from congreve.client.received import PulledRecords
from congreve.records.batches.resend import ResendEncoder, ResendIds
from congreve.records.errors import RecordError
from congreve.records.message.flags import SysFlag
from congreve.records.message.message import Record
from congreve.records.message.properties import KEYS, RETRY_TOPIC, RETRY_TOPIC_UNCHECKED, TAGS
from congreve.records.record import encode_record

QUEUE = MessageQueue(topic="%DLQ%g", broker_name="b", queue_id=3)
TOPICS_MAX, TOPIC_MAX = 64, 127
IDS = resend_ids("g", QUEUE, 1_767_225_600_000)
NAMES = st.sampled_from(
    [
        *sorted(DELIVERY_PROPERTIES - {RETRY_TOPIC, RETRY_TOPIC_UNCHECKED}),
        KEYS,
        TAGS,
        "ü",
        "WAI",
        "WAITS",
    ]
)
VALUES = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x02"), min_size=1, max_size=9
)


class Sent(NamedTuple):
    """The parts of a letter that a broker receives."""

    topic: str
    body: bytes
    flag: int
    properties: str


@st.composite
def letters(draw: st.DrawFn) -> Record:
    properties = draw(st.dictionaries(NAMES, VALUES, max_size=6))
    if not draw(st.integers(0, 5)):
        properties[RETRY_TOPIC_UNCHECKED] = "true"
    topic = draw(st.sampled_from([None, "a", "b", "ü", "x" * (TOPIC_MAX + 1)]))
    return Record(
        topic=QUEUE.topic,
        body=draw(st.binary(min_size=1, max_size=40)) * draw(st.sampled_from([1, 1, 200])),
        properties=properties if topic is None else properties | {RETRY_TOPIC: topic},
        flag=draw(st.integers(-(2**31), 2**31 - 1)),
        sys_flag=draw(st.sampled_from([0, 0, 0, int(SysFlag.COMPRESSED)])),
    )


def bodies(records: Iterable[Record], first: int, a_pull: int) -> list[bytes]:
    """The records as bodies of pulls, with offsets from `first` on."""
    encoded = [
        encode_record(msgspec.structs.replace(record, queue_offset=offset))
        for offset, record in enumerate(records, first)
    ]
    return [b"".join(encoded[at : at + a_pull]) for at in range(0, len(encoded), a_pull)]


def elements(topic: str, batch: bytes) -> Iterator[Sent]:
    at = 0
    while at < len(batch):
        size, _, _, flag, length = struct.unpack_from(">iiiii", batch, at)
        body = batch[at + 20 : at + 20 + length]
        yield Sent(topic, body, flag, batch[at + 22 + length : at + size].decode())
        at += size


def plain(letter: ReceivedMessage, retry_topic: str | None) -> Sent:
    message: Message = plain_message(letter)
    if retry_topic is not None:
        message.properties[RETRY_TOPIC] = message.topic
        message.topic = retry_topic
    outgoing = prepare(message, IDS(letter.queue_offset), compress_from=1 << 30)
    return Sent(outgoing.topic, outgoing.body, outgoing.flag, outgoing.properties)


def goes_into_a_batch(record: Record) -> bool:
    return (
        len(record.properties.get(RETRY_TOPIC, "").encode()) in range(1, TOPIC_MAX + 1)
        and RETRY_TOPIC_UNCHECKED not in record.properties
        and len(record.body) < LARGE_BODY
        and not record.sys_flag & SysFlag.COMPRESSED
    )


@given(
    records=st.lists(letters(), max_size=20),
    wanted=st.sets(st.integers(90, 125)),
    first=st.sampled_from([100, 2**32 + 2**17]),
    a_pull=st.integers(1, 5),
    size_max=st.sampled_from([BATCH_BYTES, LARGE_BODY + 1000]),
    retry_topic=st.sampled_from([None, "%RETRY%g"]),
)
def test_both_forms_send_the_same(
    records: list[Record],
    wanted: set[int],
    first: int,
    a_pull: int,
    size_max: int,
    retry_topic: str | None,
) -> None:
    pulled = bodies(records, first, a_pull)
    ranges = ranges_of(sorted(first - 100 + one for one in wanted))
    encoder = ResendEncoder(
        DELIVERY_PROPERTIES, size_max=size_max, body_max=LARGE_BODY, retry_topic=retry_topic
    )
    # A pull whose records were already encoded adds none.
    batches, others = encoder.encode([*pulled, *pulled[:1]], ranges, IDS)
    in_batches = {
        offset: sent
        for topic, body, offsets in batches
        for offset, sent in zip(offsets_of(offsets), elements(topic, body), strict=True)
    }
    letters_of = {
        letter.queue_offset: letter
        for body in pulled
        for letter in PulledRecords(body).messages(QUEUE)
        if letter.queue_offset in offsets_of(ranges)
    }
    assert sorted(in_batches) == [
        offset for offset in letters_of if goes_into_a_batch(records[offset - first])
    ]
    assert sorted([*in_batches, *offsets_of(others)]) == sorted(letters_of)
    assert in_batches == {offset: plain(letters_of[offset], retry_topic) for offset in in_batches}
    assert all(len(body) <= size_max for _, body, _ in batches)


def test_letters_of_too_many_topics_are_left_to_python() -> None:
    records = [
        Record(topic=QUEUE.topic, body=b"m", properties={RETRY_TOPIC: f"t{number}"})
        for number in range(TOPICS_MAX + 2)
    ]
    encoder = ResendEncoder(DELIVERY_PROPERTIES, size_max=BATCH_BYTES, body_max=LARGE_BODY)
    batches, others = encoder.encode(bodies(records, 0, 8), [(0, 1 << 40)], IDS)
    assert [topic for topic, _, _ in batches] == [f"t{number}" for number in range(TOPICS_MAX)]
    assert others == [(TOPICS_MAX, TOPICS_MAX + 1)]


def test_long_properties_leave_no_space_for_new_ones() -> None:
    record = Record(topic=QUEUE.topic, body=b"m", properties={RETRY_TOPIC: "t", "p": "v" * 32_700})
    encoder = ResendEncoder(DELIVERY_PROPERTIES, size_max=BATCH_BYTES, body_max=LARGE_BODY)
    assert encoder.encode(bodies([record], 0, 1), [(0, 0)], IDS) == ([], [(0, 0)])


def test_damaged_records_and_wrong_ids_are_refused() -> None:
    (body,) = bodies([Record(topic="t", body=b"m")], 0, 1)
    encoder = ResendEncoder([], size_max=1000, body_max=100)
    with pytest.raises(RecordError, match="byte 0 of the 90"):
        encoder.encode([body[:90]], [(0, 9)], IDS)
    with pytest.raises(ValueError, match="32"):
        ResendEncoder(map(str, range(33)), size_max=1000, body_max=100)
    with pytest.raises(ValueError, match="16 and 8 digits"):
        ResendIds("0" * 15, "0" * 8)
