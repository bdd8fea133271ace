"""A parked record becomes the sent message, as the 4.9.4 broker restores the same records."""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from congreve.records import restore
from congreve.records.errors import RecordError
from congreve.records.message import properties
from congreve.records.message.message import Record
from congreve.records.record import decode_record, encode_record

RECORDS: dict[str, bytes] = {
    one["step"]: bytes.fromhex(one["record_hex"])
    for one in json.loads((Path(__file__).parents[1] / "golden/parked_vectors.json").read_text())[
        "records"
    ]
}
ADDED_BY_PARKING = {properties.REAL_TOPIC, properties.REAL_QUEUE_ID, properties.DELAY}
PARKED = Record(
    topic="SCHEDULE_TOPIC_XXXX",
    body=b"body",
    properties={"REAL_TOPIC": "orders", "REAL_QID": "7", "DELAY": "3", "TAGS": "TagA"},
)

names = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=9
).filter(lambda name: name not in ADDED_BY_PARKING | {properties.TIMER_OUT_MS})


def as_stored(record: Record, **changed: object) -> Record:
    """The record without the fields that the store sets."""
    return msgspec.structs.replace(
        record,
        **{"store_timestamp": 0, "queue_offset": 0, "physical_offset": 0, "body_crc": 0, "size": 0}
        | changed,
    )


@pytest.mark.parametrize(
    ("parked", "delivered", "kind"),
    [
        ("delayed send level 1, parked", "delayed message delivered", restore.DELAYED),
        (
            "send-back (retry 1, level 1) parked in the schedule topic",
            "retry message delivered to the retry topic",
            restore.DELAYED,
        ),
        (
            "half message (later committed)",
            "committed message written to the real topic",
            restore.COMMITTED,
        ),
    ],
)
def test_a_restored_message_has_the_bytes_that_the_reference_delivers(
    parked: str, delivered: str, kind: int
) -> None:
    wanted = decode_record(RECORDS[delivered])
    assert restore.restored(RECORDS[parked], kind) == as_stored(wanted)


@given(
    given_properties=st.dictionaries(names, names, max_size=5),
    body=st.binary(max_size=40),
    queue_id=st.integers(0, 2**31 - 1),
    host=st.sampled_from([("10.1.2.3", 99), ("2001:db8::7", 10911)]),
)
def test_a_parked_message_is_restored_unchanged(
    given_properties: dict[str, str], body: bytes, queue_id: int, host: tuple[str, int]
) -> None:
    sent = Record(topic="orders", body=body, properties=given_properties, queue_id=queue_id, flag=9)
    sent = msgspec.structs.replace(sent, born_host=host, store_host=host, reconsume_times=3)
    parking = {"REAL_TOPIC": "orders", "REAL_QID": str(queue_id), "DELAY": "2"}
    parked = msgspec.structs.replace(
        sent,
        topic="SCHEDULE_TOPIC_XXXX",
        queue_id=1,
        properties={"REAL_TOPIC": "orders", **given_properties, **parking},
    )
    sys_flag = 0x30 if ":" in host[0] else 0
    wanted = msgspec.structs.replace(sent, sys_flag=sys_flag)
    stored = encode_record(parked)
    for kind in (restore.DELAYED, restore.COMMITTED):
        found = restore.restored(stored, kind)
        assert found.properties == parked.properties
        assert (found.topic, found.queue_id) == (wanted.topic, wanted.queue_id)
    # The prepared offset names its parked record, which is at 0 here.
    timed = msgspec.structs.replace(wanted, prepared_offset=1)
    assert restore.restored(stored, restore.TIMED) == timed


def test_a_committed_message_names_its_half_message() -> None:
    half = msgspec.structs.replace(PARKED, physical_offset=4711, sys_flag=5)
    committed = restore.restored(encode_record(half), restore.COMMITTED)
    assert committed.properties == PARKED.properties
    assert (committed.sys_flag, committed.prepared_offset) == (9, 4711)


@pytest.mark.parametrize("name", ["TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC"])
def test_restoring_removes_the_delivery_time_and_keeps_similar_properties(name: str) -> None:
    """A consumer that forwards the message does not want it to be delayed again."""
    times = {"TIMER_OUT_MS": "17", name: "17", "TIMER_OUT": "mine"}
    timed = msgspec.structs.replace(PARKED, properties={**PARKED.properties, **times})
    delivered = restore.restored(encode_record(timed), restore.TIMED)
    assert delivered.properties == {"TAGS": "TagA", "TIMER_OUT_MS": "17", "TIMER_OUT": "mine"}


@pytest.mark.parametrize(
    "target",
    [
        {},
        {"REAL_TOPIC": "orders"},
        {"REAL_QID": "1"},
        {"REAL_TOPIC": "orders", "REAL_QID": "-1"},
        {"REAL_TOPIC": "orders", "REAL_QID": "seven"},
        {"REAL_TOPIC": "orders", "REAL_QID": "2147483648"},
        {"REAL_TOPIC": "orders", "REAL_QID": "9" * 30},
        {"REAL_TOPIC": "t" * 128, "REAL_QID": "1"},
    ],
)
def test_a_record_without_a_target_is_refused(target: dict[str, str]) -> None:
    lost = encode_record(msgspec.structs.replace(PARKED, properties=target))
    with pytest.raises(RecordError, match="REAL_TOPIC"):
        restore.restored(lost, restore.DELAYED)


def test_invalid_records_are_refused() -> None:
    whole = encode_record(PARKED)
    for broken in (b"", whole[:40], whole[:-1], whole[:90] + b"?" + whole[91:]):
        with pytest.raises(RecordError, match="no sound record"):
            restore.restored(broken, restore.DELAYED)
