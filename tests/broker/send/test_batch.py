"""Batches: what a member may contain; the broker stores nothing of a batch that breaks a rule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from congreve.broker.send.batch import batch_fault
from congreve.records.batches.batch_body import is_ordinary, member_properties
from congreve.records.message.message import Record
from congreve.records.message.property_codec import decode_properties, encode_properties
from congreve.remoting.messages.command import RemotingCommand

from ..send_and_pull import Bench, text
from ..serving.test_fastpath import batch_body

FORBIDDEN = [
    {"DELAY": "3"},
    {"TRAN_MSG": "true", "PGROUP": "P"},
    {"TIMER_DELIVER_MS": "1700000000000"},
    {"TIMER_DELAY_SEC": "9"},
    {"TIMER_DELAY_MS": "9"},
]


@pytest.fixture
def bench(tmp_path, connection):
    made = Bench(str(tmp_path), connection)
    yield made
    made.store.close()


def refused(bench: Bench, body: bytes, **fields) -> RemotingCommand:
    """The answer to a batch that the broker must not store."""
    end = bench.store.log.max_offset
    answer = bench.send(body, code=320, batch=True, **fields)
    assert bench.store.log.max_offset == end
    assert "queueOffset" not in answer.ext_fields
    return answer


@pytest.mark.parametrize("forbidden", FORBIDDEN)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_batch_is_refused_if_a_message_has_a_delay_or_a_transaction(
    bench, forbidden, place
) -> None:
    members = [(b"body", b"TAGS\x01a")] * 3
    members[place] = (b"damaged", b"TAGS\x01a\x02" + encode_properties(forbidden))
    body = batch_body(*members)
    assert not is_ordinary(body)
    answer = refused(bench, body)
    assert answer.code == 13
    assert f"member {place}" in answer.remark
    assert next(iter(forbidden)) in answer.remark


@pytest.mark.parametrize(
    "flags",
    [["true", "false"], ["false", "true"], ["TRUE", "false"], ["false", None], [None, "FALSE"]],
)
def test_a_batch_with_different_wait_properties_is_refused(bench, flags) -> None:
    body = batch_body(
        *(
            (b"body", b"TAGS\x01a" + (b"\x02WAIT\x01" + flag.encode() if flag else b""))
            for flag in flags
        )
    )
    assert not is_ordinary(body)
    answer = refused(bench, body)
    assert (answer.code, "member 1" in answer.remark, "WAIT" in answer.remark) == (13, True, True)


@pytest.mark.parametrize("flags", [[b"true", b"TRUE"], [b"false", b"no"], [b"false\x02k\x01v"] * 2])
def test_a_batch_with_equal_wait_properties_is_accepted(bench, flags) -> None:
    body = batch_body(*((b"body", b"WAIT\x01" + flag) for flag in flags))
    assert is_ordinary(body)
    assert bench.send(body, code=320, batch=True).code == 0


@pytest.mark.parametrize("forbidden", FORBIDDEN)
def test_a_batch_with_a_delay_or_a_transaction_is_refused(bench, forbidden) -> None:
    answer = refused(bench, batch_body((b"body", b"")), properties=text(**forbidden))
    assert answer.code == 13
    assert next(iter(forbidden)) in answer.remark


def test_a_batch_to_a_retry_topic_follows_the_rules_of_its_messages(bench) -> None:
    body = batch_body((b"one", b""), (b"two", b""))
    to_group = {"code": 320, "batch": True, "topic": "%RETRY%G", "queue_id": 0}
    for topic, attempts in (("%RETRY%G", 3), ("%DLQ%G", 4)):
        answer = bench.send(body, reconsume_times=attempts, max_reconsume_times=4, **to_group)
        assert answer.code == 0
        assert [bench.stored(topic, offset=at).body for at in range(2)] == [b"one", b"two"]


@pytest.mark.parametrize("sys_flag", [4, 8, 12])
def test_a_batch_of_a_transaction_type_is_refused(bench, sys_flag: int) -> None:
    assert refused(bench, batch_body((b"body", b"")), sys_flag=sys_flag).code == 13


def test_a_batch_over_the_size_limit_is_refused(bench) -> None:
    member = (b"x" * 1_000_000, b"")
    assert refused(bench, batch_body(*[member] * 5)).code == 13


@pytest.mark.parametrize(
    "damage",
    [
        lambda body: b"",
        lambda body: body[:-1],
        lambda body: body + b"\0",
        lambda body: body[:4] + body[5:],
        lambda body: b"\x7f" + body[1:],
        lambda body: b"\xff" * 4 + body[4:],
        lambda body: body[:16] + b"\xff" * 4 + body[20:],
        lambda body: body[:-5] + b"\xff\xff" + body[-3:],
    ],
)
def test_no_message_of_a_malformed_batch_is_stored(bench, damage) -> None:
    body = batch_body((b"one", b"TAGS\x01a"), (b"two", b"k\x01v"))
    assert refused(bench, damage(body)).code == 13


def test_a_delay_of_zero_in_a_dead_letter_does_not_count_as_a_delay(bench) -> None:
    body = batch_body((b"one", b"DELAY\x010"), (b"two", b"TRAN_MSG\x01false"))
    assert not is_ordinary(body)
    assert bench.send(body, code=320, batch=True).code == 0
    assert bench.store.max_offset("T", 0) == 2


names = st.sampled_from(["TAGS", "KEYS", "DELA", "DELAYS", "TRAN_MSGS", "TIMER", "x"])


@given(st.lists(st.dictionaries(names, st.sampled_from(["1", "true", "v"]), max_size=4)))
def test_messages_with_ordinary_properties_make_an_ordinary_batch(members) -> None:
    body = batch_body(*[(b"body", encode_properties(one)) for one in members])
    assert is_ordinary(body)
    assert [decode_properties(one) for one in member_properties(body)] == members
    assert batch_fault(Record(topic="T", body=b""), body) is None


@given(st.binary(max_size=300))
def test_arbitrary_bytes_can_be_inspected(body: bytes) -> None:
    is_ordinary(body)
    member_properties(body)
