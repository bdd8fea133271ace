"""Half messages, their ends and their copies, over a real store."""

import msgspec
import pytest
from harness.transaction_bench import (
    COMMIT,
    HALF_TOPIC,
    OP_TOPIC,
    ROLLBACK,
    UNKNOWN,
    TransactionBench,
)

MINUTE = 60_000


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
def test_an_unknown_end_gets_no_answer_and_has_no_effect(bench, how: int) -> None:
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
def test_an_end_for_another_message_is_refused_with_the_field_that_differs(
    bench, how: int, fields, says
) -> None:
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


def test_a_broker_that_rejects_transactions_refuses_half_messages(tmp_path, connection) -> None:
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


# --- copies


def test_d22_an_end_that_names_an_older_copy_ends_the_transaction(tmp_path, connection) -> None:
    bench = TransactionBench(tmp_path / "store", connection, segment=16 << 10)
    bench.producer(connection)
    half = bench.send_half(b"first")
    bench.end(bench.send_half(b"x" * 15_000, UNIQ_KEY="long"))
    bench.clock.advance(MINUTE)
    (asked,) = bench.check()
    # Its segment could have been deleted, so it was copied, and the old half message was ended.
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


def test_d22_the_newest_of_copies_without_an_op_record_counts(bench) -> None:
    """A Java broker leaves such copies if it is killed before it saves its offsets."""
    first = bench.send_half(b"one")
    (half,) = bench.records(HALF_TOPIC)
    for times in ("2", "3"):
        stored = {**half.properties, "TRANSACTION_CHECK_TIMES": times}
        bench.store.put(msgspec.structs.replace(half, properties=stored))
    bench.restart()
    assert bench.transactions.service.open_offsets() == [2]
    assert bench.end(first).code == 0
    assert bench.visible() == [b"one"]
    assert bench.transactions.service.open_offsets() == []


def test_two_transactions_with_one_message_id_are_independent(bench) -> None:
    """A program may send the same message object again, id included."""
    first, second = (bench.send_half(body, UNIQ_KEY="same") for body in (b"one", b"two"))
    bench.restart()
    assert bench.end(second).code == 0
    assert bench.end(first).code == 0
    assert bench.visible() == [b"two", b"one"]


def test_a_committed_message_keeps_all_fields_of_its_half_message(bench) -> None:
    bench.end(bench.send_half(WAIT="true"))
    (half,) = bench.records(HALF_TOPIC)
    (received,) = bench.records("T", 2)
    assert received.properties == half.properties
    assert received.properties.keys() >= {"PGROUP", "REAL_TOPIC", "REAL_QID", "WAIT", "TRAN_MSG"}


def test_a_message_without_a_producer_group_starts_no_transaction(bench) -> None:
    answer = bench.send_half(b"alone", PGROUP=None)
    assert answer.code == 0
    assert bench.visible() == [b"alone"]
    assert bench.records("T", 2)[0].sys_flag == 0
