"""Lazy messages have the same fields as those of the eager decoder."""

import zlib

import pytest
from harness.fake_cluster import record
from hypothesis import given
from hypothesis import strategies as st

from congreve.client.message import MessageQueue
from congreve.client.received import PulledRecords
from congreve.records.errors import RecordError
from congreve.records.message.message import Record
from congreve.records.record import decode_record, encode_record, offset_message_id

QUEUE = MessageQueue(topic="T", broker_name="a", queue_id=0)
TEXT = st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"), min_size=1)
RECORDS = st.builds(
    Record,
    topic=st.sampled_from(["T", "%RETRY%g", "%RETRY%"]),
    body=st.binary(max_size=50),
    properties=st.dictionaries(
        st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "RETRY_TOPIC", "own", "TAG"]), TEXT
    ),
    flag=st.integers(-(2**31), 2**31 - 1),
    born_timestamp=st.integers(0, 2**62),
    store_timestamp=st.integers(0, 2**62),
    queue_offset=st.integers(0, 2**62),
    physical_offset=st.integers(0, 2**62),
    reconsume_times=st.integers(0, 100),
    born_host=st.sampled_from([("10.0.0.7", 1), ("::1", 65535)]),
    store_host=st.sampled_from([("10.0.0.8", 10911), ("fe80::2", 10911)]),
)


@given(st.lists(RECORDS, max_size=6))
def test_views_agree_with_the_decoder(records: list[Record]) -> None:
    encoded = [encode_record(each) for each in records]
    messages = PulledRecords(b"".join(encoded)).messages(QUEUE)
    assert len(messages) == len(records)
    for data, message in zip(encoded, messages, strict=True):
        eager = decode_record(data)
        retried = eager.topic.startswith("%RETRY%") and eager.topic != "%RETRY%"
        topic = eager.properties.get("RETRY_TOPIC", eager.topic) if retried else eager.topic
        assert message.tags == eager.properties.get("TAGS")
        assert message.topic == topic
        assert message.keys == eager.properties.get("KEYS")
        assert (message.body, message.properties) == (eager.body, eager.properties)
        assert message.tags == eager.properties.get("TAGS")
        assert (message.born_host, message.store_host) == (eager.born_host, eager.store_host)
        for name in ("flag", "born_timestamp", "store_timestamp", "queue_offset"):
            assert getattr(message, name) == getattr(eager, name)
        place = offset_message_id(eager.store_host, eager.physical_offset)
        assert message.offset_message_id == place
        assert message.message_id == eager.properties.get("UNIQ_KEY", place)


@given(st.lists(st.integers(0, 9), max_size=30))
def test_first_undone_is_the_first_message_not_marked_done(order: list[int]) -> None:
    records = PulledRecords(b"".join(record(100 + i) for i in range(10)))
    messages = records.messages(QUEUE)
    done: set[int] = set()
    for i in order:
        assert records.done(messages[i]) == (i not in done)
        done.add(i)
        left = [100 + i for i in range(10) if i not in done]
        assert (records.first_undone, records.undone) == (min(left, default=None), len(left))
    assert records.done_rest() == 10 - len(done)
    assert records.first_undone is None


def test_messages_with_other_tags_are_filtered_by_the_client() -> None:
    data = record(0) + record(1)
    assert len(PulledRecords(data, tags=["A", "B"])) == 2
    assert len(PulledRecords(data, tags=["B"])) == 0
    assert PulledRecords(data, tags=["B"]).first_undone is None


def test_a_view_stays_valid_after_its_pull() -> None:
    message = PulledRecords(record(7, b"body")).messages(QUEUE)[0]
    assert (message.body, message.body_size, message.queue_id) == (b"body", 4, 0)


@given(st.data())
def test_damaged_bodies_are_refused_without_a_crash(data: st.DataObject) -> None:
    sound = record(0, b"one") + record(1, zlib.crc32(b"x").to_bytes(4, "big"))
    cut = data.draw(st.integers(1, len(sound) - 1).filter(lambda at: at != len(record(0, b"one"))))
    with pytest.raises(RecordError):
        PulledRecords(sound[:cut])
    damaged = bytearray(sound)
    for at in data.draw(st.lists(st.integers(0, len(sound) - 1), max_size=5)):
        damaged[at] ^= data.draw(st.integers(1, 255))
    try:
        messages = PulledRecords(bytes(damaged)).messages(QUEUE)
    except RecordError:
        return
    for message in messages:
        assert isinstance(message.properties, dict)
        assert message.message_id
        assert message.topic is not None
