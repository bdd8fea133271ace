"""Checks of half messages whose outcome the broker does not know."""

from pathlib import Path

import msgspec
import pytest
from harness.transaction_bench import (
    BORN,
    COMMIT,
    GIVEN_UP_TOPIC,
    HALF_TOPIC,
    ROLLBACK,
    TransactionBench,
)

from congreve.records.layout import PROPERTIES_MAX
from congreve.records.message.fitting import properties_size
from congreve.records.message.message import Record
from congreve.records.record import decode_record
from congreve.remoting.messages.admin_headers import ResumeCheckHalfMessageRequestHeader
from congreve.remoting.messages.command import RemotingCommand

MINUTE = 60_000


def test_an_old_half_message_is_checked_and_a_young_one_is_not(bench) -> None:
    bench.producer(bench.connection)
    half = bench.send_half(b"one")
    bench.clock.advance(5_999)
    assert bench.check() == []
    bench.clock.advance(2)
    (asked,) = bench.check()
    (stored,) = bench.records(HALF_TOPIC)
    assert asked.code == 39
    assert asked.ext_fields == {
        "tranStateTableOffset": "0",
        "commitLogOffset": str(stored.physical_offset),
        "msgId": "key-b'one'",
        "transactionId": "key-b'one'",
        "offsetMsgId": half.ext_fields["msgId"],
    }
    shown = decode_record(asked.body)
    assert (shown.topic, shown.queue_id, shown.body) == ("T", 2, b"one")
    checked = {**stored.properties, "TRANSACTION_CHECK_TIMES": "1"}
    assert shown.properties == checked | {"WAIT": "false"}
    assert (shown.queue_offset, shown.physical_offset) == (0, stored.physical_offset)
    assert bench.answer_check(asked, COMMIT).code == 0
    assert bench.visible() == [b"one"]
    (committed,) = bench.records("T", 2)
    assert committed.properties == checked
    bench.clock.advance(MINUTE)
    assert bench.check() == []


def test_a_half_message_that_readers_do_not_see_is_not_checked(bench) -> None:
    bench.producer(bench.connection)
    bench.store.show_below(0)
    bench.send_half(b"one")
    bench.clock.advance(MINUTE)
    assert bench.check() == []
    bench.store.show_below(bench.store.log.max_offset)
    assert len(bench.check()) == 1


def test_a_half_message_from_the_future_is_checked_at_once(bench) -> None:
    bench.producer(bench.connection)
    bench.send_half(born=BORN + MINUTE)
    bench.clock.advance(1)
    assert len(bench.check()) == 1


def test_a_half_message_that_was_stored_while_the_clock_was_ahead_is_checked(bench) -> None:
    bench.producer(bench.connection)
    bench.clock.advance(24 * 60 * MINUTE)
    bench.send_half()
    bench.clock.advance(-24 * 60 * MINUTE + MINUTE)
    assert len(bench.check()) == 1


@pytest.mark.parametrize(("immunity", "wait"), [("30", 30_000), ("1", 1_000), ("-1", 6_000)])
def test_a_half_message_is_not_checked_during_its_own_immunity_time(
    bench, immunity: str, wait: int
) -> None:
    bench.producer(bench.connection)
    bench.send_half(CHECK_IMMUNITY_TIME_IN_SECONDS=immunity)
    bench.clock.advance(wait - 1)
    assert bench.check() == []
    bench.clock.advance(1)
    assert len(bench.check()) == 1


def test_d21_immunity_and_absent_producers_cost_no_checks(bench) -> None:
    bench.send_half(CHECK_IMMUNITY_TIME_IN_SECONDS="3600")
    for _ in range(100):
        bench.clock.advance(MINUTE)
        assert bench.check() == []
    bench.producer(bench.connection)
    asked = 0
    for _ in range(20):
        bench.clock.advance(MINUTE)
        asked += len(bench.check())
    assert asked == 15
    assert [one.body for one in bench.records(GIVEN_UP_TOPIC)] == [b"hello"]


def test_d21_a_check_does_not_write_the_half_message_again(bench) -> None:
    bench.producer(bench.connection)
    bench.send_half()
    end = bench.store.log.max_offset
    for _ in range(10):
        bench.clock.advance(MINUTE)
        assert len(bench.check()) == 1
    assert bench.store.log.max_offset == end


def test_a_half_message_without_an_end_is_discarded_after_the_maximum_of_checks(bench) -> None:
    bench.producer(bench.connection)
    bench.send_half(b"stuck")
    bench.send_half(b"fine")
    asked = []
    for number in range(16):
        bench.clock.advance(MINUTE)
        asked += bench.check()
        if number == 0:
            assert bench.answer_check(asked[1], ROLLBACK).code == 0
    assert len(asked) == 16
    (kept,) = bench.records(GIVEN_UP_TOPIC)
    assert (kept.body, kept.flag) == (b"stuck", 7)
    assert kept.properties["TRANSACTION_CHECK_TIMES"] == "15"
    assert kept.properties["REAL_TOPIC"] == "T"
    assert bench.topics.get(GIVEN_UP_TOPIC).write_queue_nums == 1
    assert bench.transactions.service.open_offsets() == []
    assert bench.answer_check(asked[0], COMMIT).code == 1
    assert bench.visible() == []


def test_the_count_of_checks_survives_a_restart(bench) -> None:
    for _ in range(3):
        bench.producer(bench.connection)
        if not bench.transactions.service.open_offsets():
            bench.send_half()
        for _ in range(5):
            bench.clock.advance(MINUTE)
            assert len(bench.check()) == 1
        bench.restart()
    bench.producer(bench.connection)
    bench.clock.advance(MINUTE)
    assert bench.check() == []
    assert len(bench.records(GIVEN_UP_TOPIC)) == 1


def test_a_half_message_older_than_the_retention_is_discarded_without_a_check(bench) -> None:
    bench.producer(bench.connection)
    bench.send_half(CHECK_IMMUNITY_TIME_IN_SECONDS=str(100 * 3600))
    bench.clock.advance(72 * 60 * MINUTE)
    assert bench.check() == []
    assert bench.records(GIVEN_UP_TOPIC) == []
    bench.clock.advance(1)
    assert bench.check() == []
    assert len(bench.records(GIVEN_UP_TOPIC)) == 1


def test_an_operator_resumes_checks_of_a_discarded_half_message(bench) -> None:
    bench.send_half()
    bench.clock.advance(73 * 60 * MINUTE)
    bench.check()
    (kept,) = bench.records(GIVEN_UP_TOPIC)
    name = bench.store.log.read(kept.physical_offset)
    assert name is not None
    header = ResumeCheckHalfMessageRequestHeader(
        msg_id=f"7F00000100002A9F{kept.physical_offset:016X}"
    )
    answer = bench.ask(RemotingCommand(code=323, ext_fields=header.fields()))
    assert answer.code == 0, answer.remark
    resumed = bench.records(HALF_TOPIC)[-1]
    assert resumed.properties["TRANSACTION_CHECK_TIMES"] == "0"
    again = bench.ask(
        RemotingCommand(code=323, ext_fields={"msgId": "7F00000100002A9F" + "0" * 16})
    )
    assert (again.code, GIVEN_UP_TOPIC in again.remark) == (1, True)


def test_dead_producers_are_skipped(bench, another_connection) -> None:
    bench.producer(bench.connection)
    bench.producer(another_connection)
    another_connection.closed = True
    bench.send_half()
    for _ in range(4):
        bench.clock.advance(MINUTE)
        assert len(bench.check()) == 1
    assert another_connection.asked == []


def test_live_producers_are_checked_in_turn(bench, another_connection) -> None:
    bench.producer(bench.connection)
    bench.producer(another_connection)
    bench.send_half()
    for _ in range(4):
        bench.clock.advance(MINUTE)
        bench.check()
    assert len(bench.connection.asked) == len(another_connection.asked) == 2


def test_a_producer_of_another_group_gets_no_check(bench) -> None:
    bench.producer(bench.connection, group="Q")
    bench.send_half()
    bench.clock.advance(MINUTE)
    assert bench.check() == []


def send_full_half(bench, size: int = PROPERTIES_MAX) -> RemotingCommand:
    """Send a half message whose stored properties have `size` bytes."""
    probe = bench.send_half(b"probe", filler="x")
    (stored,) = bench.records(HALF_TOPIC)
    assert bench.end(probe, ROLLBACK).code == 0
    return bench.send_half(b"large", filler="x" * (size + 1 - properties_size(stored)))


def test_a_half_message_without_room_for_a_count_of_checks_is_committed_after_a_check(
    bench,
) -> None:
    bench.producer(bench.connection)
    assert send_full_half(bench).code == 0
    bench.clock.advance(MINUTE)
    (asked,) = bench.check()
    assert bench.answer_check(asked, COMMIT).code == 0
    assert bench.visible() == [b"large"]


def test_a_half_message_without_room_for_a_count_of_checks_is_given_up(bench) -> None:
    bench.producer(bench.connection)
    assert send_full_half(bench).code == 0
    for _ in range(16):
        bench.clock.advance(MINUTE)
        bench.check()
    (kept,) = bench.records(GIVEN_UP_TOPIC)
    assert (kept.body, kept.properties["REAL_TOPIC"]) == (b"large", "T")
    assert bench.transactions.service.open_offsets() == []


def test_a_half_message_without_room_to_be_copied_is_given_up_before_it_expires(
    tmp_path: Path, connection
) -> None:
    bench = TransactionBench(tmp_path / "store", connection, segment=128 << 10)
    bench.producer(connection)
    assert send_full_half(bench).code == 0
    for _ in range(3):
        bench.store.put(Record(topic="other", body=bytes(60_000)))
    bench.clock.advance(MINUTE)
    assert bench.check() == []
    assert [record.body for record in bench.records(GIVEN_UP_TOPIC)] == [b"large"]
    assert bench.transactions.service.open_offsets() == []
    bench.close()


def test_a_stored_half_message_with_an_unusable_delay_can_be_committed(bench) -> None:
    """Earlier versions stored it."""
    bench.producer(bench.connection)
    answer = bench.send_half(b"one", DELAY="3")
    half = bench.transactions.service.half_at(0)
    earlier = msgspec.structs.replace(half, properties={**half.properties, "DELAY": "4x"})
    assert bench.end(answer, ROLLBACK).code == 0
    bench.store.put(earlier)
    bench.clock.advance(MINUTE)
    (asked,) = bench.check()
    assert bench.answer_check(asked, COMMIT).code == 0
    assert bench.visible() == [b"one"]


def test_a_commit_is_visible_when_its_topic_has_fewer_queues(bench) -> None:
    half = bench.send_half(b"one")
    topic = msgspec.structs.replace(bench.topics.get("T"), read_queue_nums=2, write_queue_nums=2)
    bench.topics.update(topic)
    assert bench.end(half).code == 0
    assert [record.body for record in bench.records("T", 0)] == [b"one"]
