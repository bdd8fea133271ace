"""Half messages, their ends and their checks, over a real store."""

from pathlib import Path

import pytest

from congreve.records.message import Record
from congreve.records.record import decode_record
from congreve.remoting.command import RemotingCommand
from congreve.remoting.headers import ResumeCheckHalfMessageRequestHeader

from .transactionbench import (
    BORN,
    COMMIT,
    GIVEN_UP_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    ROLLBACK,
    UNKNOWN,
    TransactionBench,
)

MINUTE = 60_000


@pytest.fixture
def bench(tmp_path: Path, connection):
    made = TransactionBench(tmp_path / "store", connection)
    yield made
    made.close()


def test_a_half_message_is_stored_as_the_reference_stores_it(bench) -> None:
    answer = bench.send_half(b"one")
    assert answer.code == 0
    assert (answer.ext_fields["queueId"], answer.ext_fields["queueOffset"]) == ("2", "0")
    (half,) = bench.records(HALF_TOPIC)
    assert (half.queue_id, half.sys_flag, half.flag) == (0, 0, 7)
    assert half.properties == {
        **{"TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": "key-b'one'", "TAGS": "a"},
        **{"CLUSTER": "C", "REAL_TOPIC": "T", "REAL_QID": "2"},
    }
    assert bench.visible() == []


def test_a_committed_message_is_visible_once_and_names_its_half_message(bench) -> None:
    half = bench.send_half(b"one")
    assert bench.end(half).code == 0
    (message,) = bench.records("T", 2)
    (prepared,) = bench.records(HALF_TOPIC)
    assert (message.body, message.flag, message.sys_flag) == (b"one", 7, 8)
    assert message.prepared_offset == prepared.physical_offset
    assert message.born_timestamp == prepared.born_timestamp
    (op,) = bench.records(OP_TOPIC)
    assert (op.body, op.properties) == (b"0", {"TAGS": "d", "WAIT": "true"})
    assert (op.born_host, op.store_host) == (("127.0.0.1", 10911),) * 2


def test_a_rolled_back_message_is_never_visible(bench) -> None:
    half = bench.send_half(b"one")
    assert bench.end(half, ROLLBACK).code == 0
    assert bench.visible() == []
    assert [op.body for op in bench.records(OP_TOPIC)] == [b"0"]


@pytest.mark.parametrize("how", [UNKNOWN, 4, 16])
def test_an_end_that_is_not_known_gets_no_answer_and_changes_nothing(bench, how: int) -> None:
    half = bench.send_half()
    assert bench.end(half, how) is None
    assert bench.records(OP_TOPIC) == []
    assert bench.end(half).code == 0


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"producer_group": "Q"}, "The producer group wrong"),
        ({"tran_state_table_offset": 1}, "The transaction state table offset wrong"),
        ({"tran_state_table_offset": -1}, "The transaction state table offset wrong"),
        ({"commit_log_offset": 1}, "Find prepared transaction message failed"),
        ({"commit_log_offset": -1}, "Find prepared transaction message failed"),
        ({"commit_log_offset": 1 << 60}, "Find prepared transaction message failed"),
    ],
)
@pytest.mark.parametrize("how", [COMMIT, ROLLBACK])
def test_an_end_for_something_else_is_refused_by_name(bench, how: int, fields, says) -> None:
    half = bench.send_half()
    answer = bench.end(half, how, **fields)
    assert answer.code == 1
    assert says in answer.remark
    assert bench.records(OP_TOPIC) == []
    assert bench.visible() == []


def test_an_end_that_names_an_ordinary_message_is_refused(bench) -> None:
    ordinary = bench.send_half(TRAN_MSG=None)
    assert bench.visible() == [b"hello"]
    answer = bench.end(ordinary)
    assert (answer.code, answer.remark[:36]) == (1, "Find prepared transaction message fa")
    assert bench.visible() == [b"hello"]


@pytest.mark.parametrize("first", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("second", [COMMIT, ROLLBACK])
def test_a_second_end_does_not_deliver_again(bench, first: int, second: int) -> None:
    half = bench.send_half()
    assert bench.end(half, first).code == 0
    answer = bench.end(half, second)
    assert (answer.code, "ended before" in answer.remark) == (1, True)
    assert len(bench.visible()) == (first == COMMIT)
    bench.restart()
    assert bench.end(half, second).code == 1
    assert len(bench.visible()) == (first == COMMIT)


def test_half_messages_are_refused_where_the_broker_takes_none(tmp_path, connection) -> None:
    bench = TransactionBench(tmp_path / "store", connection, reject_transaction_message=True)
    answer = bench.send_half()
    assert answer.code == 16
    assert "transaction message is forbidden" in answer.remark
    assert bench.store.log.max_offset == 0
    bench.close()


def test_a_slave_ends_no_transaction(tmp_path, connection) -> None:
    bench = TransactionBench(tmp_path / "store", connection, broker_role="SLAVE")
    half = bench.send_half()
    assert bench.end(half).code == 11
    bench.close()


# --- checks


def test_a_young_half_message_is_not_asked_for_and_an_old_one_is(bench) -> None:
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
    assert shown.properties == stored.properties
    assert (shown.queue_offset, shown.physical_offset) == (0, stored.physical_offset)
    assert bench.answer_check(asked, COMMIT).code == 0
    assert bench.visible() == [b"one"]
    bench.clock.advance(MINUTE)
    assert bench.check() == []


def test_a_message_from_the_future_is_asked_for_at_once(bench) -> None:
    bench.producer(bench.connection)
    bench.send_half(born=BORN + MINUTE)
    bench.clock.advance(1)
    assert len(bench.check()) == 1


@pytest.mark.parametrize(("immunity", "wait"), [("30", 30_000), ("1", 1_000), ("-1", 6_000)])
def test_a_message_is_immune_for_as_long_as_it_says(bench, immunity: str, wait: int) -> None:
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


def test_a_message_that_nobody_ends_is_kept_aside_after_so_many_checks(bench) -> None:
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


def test_a_message_older_than_the_log_keeps_is_kept_aside_unasked(bench) -> None:
    bench.producer(bench.connection)
    bench.send_half(CHECK_IMMUNITY_TIME_IN_SECONDS=str(100 * 3600))
    bench.clock.advance(72 * 60 * MINUTE)
    assert bench.check() == []
    assert bench.records(GIVEN_UP_TOPIC) == []
    bench.clock.advance(1)
    assert bench.check() == []
    assert len(bench.records(GIVEN_UP_TOPIC)) == 1


def test_an_operator_takes_a_given_up_message_back(bench) -> None:
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


def test_producers_that_died_are_passed_over(bench, another_connection) -> None:
    bench.producer(bench.connection)
    bench.producer(another_connection)
    another_connection.closed = True
    bench.send_half()
    for _ in range(4):
        bench.clock.advance(MINUTE)
        assert len(bench.check()) == 1
    assert another_connection.asked == []


def test_living_producers_are_asked_in_turn(bench, another_connection) -> None:
    bench.producer(bench.connection)
    bench.producer(another_connection)
    bench.send_half()
    for _ in range(4):
        bench.clock.advance(MINUTE)
        bench.check()
    assert len(bench.connection.asked) == len(another_connection.asked) == 2


def test_a_producer_of_another_group_is_not_asked(bench) -> None:
    bench.producer(bench.connection, group="Q")
    bench.send_half()
    bench.clock.advance(MINUTE)
    assert bench.check() == []


# --- copies


def test_d22_an_end_that_names_an_older_copy_ends_the_transaction(tmp_path, connection) -> None:
    bench = TransactionBench(tmp_path / "store", connection, segment=16 << 10)
    bench.producer(connection)
    half = bench.send_half(b"first")
    bench.end(bench.send_half(b"x" * 15_000, UNIQ_KEY="long"))
    bench.clock.advance(MINUTE)
    (asked,) = bench.check()
    # It lay in a segment that could be deleted: it was copied, and the old one settled.
    assert asked.ext_fields["tranStateTableOffset"] == "2"
    copy = bench.records(HALF_TOPIC)[2]
    assert copy.properties["TRAN_PREPARED_QUEUE_OFFSET"] == "0"
    assert copy.flag == 7
    assert {op.body for op in bench.records(OP_TOPIC)} == {b"0", b"1"}
    bench.restart()
    assert bench.end(half).code == 0
    assert bench.visible()[-1] == b"first"
    assert bench.answer_check(asked, COMMIT).code == 1
    assert bench.visible().count(b"first") == 1
    bench.clock.advance(MINUTE)
    assert bench.check() == []
    bench.close()


def test_d22_of_copies_without_an_op_record_the_newest_counts(bench) -> None:
    """As a Java broker leaves them when it dies before its offsets are saved."""
    first = bench.send_half(b"one", TRANSACTION_CHECK_TIMES="1")
    bench.send_half(b"one", TRANSACTION_CHECK_TIMES="2")
    bench.send_half(b"one", TRANSACTION_CHECK_TIMES="3")
    bench.restart()
    assert bench.transactions.service.open_offsets() == [2]
    assert bench.end(first).code == 0
    assert bench.visible() == [b"one"]
    assert bench.transactions.service.open_offsets() == []


def test_two_transactions_with_one_message_id_are_two(bench) -> None:
    """A program may send the same message object again, id included."""
    first, second = (bench.send_half(body, UNIQ_KEY="same") for body in (b"one", b"two"))
    bench.restart()
    assert bench.end(second).code == 0
    assert bench.end(first).code == 0
    assert bench.visible() == [b"two", b"one"]


def test_d25_a_consumer_that_sends_a_committed_message_on_starts_no_transaction(bench) -> None:
    bench.end(bench.send_half())
    (received,) = bench.records("T", 2)
    assert not received.properties.keys() & {
        *("PGROUP", "REAL_TOPIC", "REAL_QID", "TRANSACTION_CHECK_TIMES"),
        "TRAN_PREPARED_QUEUE_OFFSET",
    }
    # By this one the Java client tells a consumer the transaction's id.
    assert received.properties["TRAN_MSG"] == "true"
    answer = bench.send_half(b"sent on", **(dict.fromkeys(["PGROUP"]) | received.properties))
    assert answer.code == 0
    assert bench.visible() == [b"hello", b"sent on"]
    assert len(bench.records(HALF_TOPIC)) == 1
    assert bench.records("T", 2)[1].sys_flag == 0


# --- stops in the middle


def test_open_transactions_survive_a_restart(bench) -> None:
    halves = [bench.send_half(b"%d" % i) for i in range(10)]
    for number in (0, 1, 2, 5):
        bench.end(halves[number], ROLLBACK)
    bench.restart()
    assert bench.transactions.service.open_offsets() == [3, 4, 6, 7, 8, 9]
    for half in halves[6:]:
        assert bench.end(half).code == 0
    bench.restart()
    assert bench.visible() == [b"6", b"7", b"8", b"9"]
    assert bench.transactions.service.open_offsets() == [3, 4]
    bench.producer(bench.connection)
    bench.clock.advance(MINUTE)
    assert [one.ext_fields["tranStateTableOffset"] for one in bench.check()] == ["3", "4"]


@pytest.mark.parametrize("forget", [False, True])
def test_a_kill_forgets_and_doubles_nothing(bench, forget: bool) -> None:
    halves = [bench.send_half(b"%d" % i) for i in range(6)]
    bench.end(halves[0])
    bench.transactions.save()
    bench.end(halves[1], ROLLBACK)
    bench.end(halves[3])
    bench.killed(forget=forget)
    assert bench.transactions.service.open_offsets() == [2, 4, 5]
    assert [bench.end(half).code for half in halves] == [1, 1, 0, 1, 0, 0]
    assert bench.visible() == [b"0", b"3", b"2", b"4", b"5"]


def test_a_commit_whose_op_record_was_lost_is_not_repeated(bench) -> None:
    half = bench.send_half(b"one")
    bench.end(half)
    (op,) = bench.records(OP_TOPIC)

    def cut(root: Path) -> None:
        assert len(bench.store.log.segments) == 1
        segment = root / "commitlog" / f"{0:020d}"
        with segment.open("r+b") as file:
            file.seek(op.physical_offset)
            file.write(bytes(op.size))

    bench.killed(cut)
    assert bench.transactions.service.open_offsets() == []
    assert [one.body for one in bench.records(OP_TOPIC)] == [b"0"]
    assert bench.end(half).code == 1
    assert bench.visible() == [b"one"]


def test_offsets_ahead_of_a_log_that_lost_its_tail_forget_no_new_half_message(bench) -> None:
    bench.end(bench.send_half())
    bench.offsets.commit("CID_RMQ_SYS_TRANS", HALF_TOPIC, 0, 50)
    bench.offsets.commit("CID_RMQ_SYS_TRANS", OP_TOPIC, 0, 50)
    bench.restart()
    half = bench.send_half(b"new")
    assert bench.transactions.service.open_offsets() == [1]
    bench.restart()
    assert bench.transactions.service.open_offsets() == [1]
    assert bench.end(half).code == 0


def test_progress_is_what_a_java_broker_goes_on_from(bench) -> None:
    def progress(topic: str) -> int:
        return bench.offsets.query("CID_RMQ_SYS_TRANS", topic, 0)

    halves = [bench.send_half(b"%d" % i) for i in range(5)]
    bench.transactions.save()
    assert (progress(HALF_TOPIC), progress(OP_TOPIC)) == (-1, -1)
    for number in (0, 1, 3):
        bench.end(halves[number])
    bench.store.wait_durable(bench.store.log.max_offset, 5)
    bench.transactions.save()
    # The op record of half message 3, at offset 2, is still to be read.
    assert (progress(HALF_TOPIC), progress(OP_TOPIC)) == (2, -1)
    for number in (2, 4):
        bench.end(halves[number])
    bench.store.wait_durable(bench.store.log.max_offset, 5)
    bench.transactions.save()
    assert (progress(HALF_TOPIC), progress(OP_TOPIC)) == (5, 5)


def test_progress_promises_nothing_that_is_not_on_disk(bench, fake_backend) -> None:
    service = bench.transactions.service
    bench.end(bench.send_half())
    bench.store.backend, real = fake_backend, bench.store.backend
    service.save_progress()
    assert bench.offsets.query("CID_RMQ_SYS_TRANS", HALF_TOPIC, 0) == -1
    fake_backend.becomes_durable(bench.store.log.max_offset)
    service.save_progress()
    assert bench.offsets.query("CID_RMQ_SYS_TRANS", HALF_TOPIC, 0) == 1
    bench.store.backend = real


def test_op_records_that_say_something_else_settle_nothing(bench) -> None:
    bench.send_half(b"one")
    for body, tags in (
        *((b"0", "x"), (b"0", None), (b"-0", "d"), (b"", "d"), (b"0.", "d"), (b"7", "d")),
        *((b"9" * 19, "d"), (b"9" * 40, "d"), (b"zero", "d")),
    ):
        told = {} if tags is None else {"TAGS": tags}
        bench.store.put(Record(topic=OP_TOPIC, body=body, properties=told))
    bench.restart()
    assert bench.transactions.service.open_offsets() == [0]
    bench.store.put(Record(topic=OP_TOPIC, body=b"0", properties={"TAGS": "d"}))
    bench.restart()
    assert bench.transactions.service.open_offsets() == []
