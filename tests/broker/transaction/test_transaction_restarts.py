"""Transactions survive restarts and kills."""

from pathlib import Path

import pytest
from harness.transaction_bench import (
    HALF_TOPIC,
    OP_TOPIC,
    ROLLBACK,
)

from congreve.engine.timer.redelivery import Redelivery
from congreve.records.message.message import Record

MINUTE = 60_000


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
def test_a_kill_loses_and_repeats_no_transaction(bench, forget: bool) -> None:
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


def test_a_delayed_commit_at_the_end_of_the_log_ends_no_other_half_message(bench) -> None:
    """As in the reference it names the record at 0, which may be an open half message."""
    first = bench.send_half(b"first")
    delayed = bench.send_half(b"delayed", DELAY="1")
    assert bench.end(delayed).code == 0
    (parked,) = bench.records("SCHEDULE_TOPIC_XXXX")
    assert (parked.properties["DELAY"], parked.properties["REAL_TOPIC"]) == ("1", "T")
    bench.clock.advance(MINUTE)
    run = Redelivery(bench.store.log, bench.store.queues)
    queue = bench.store.queues.get("SCHEDULE_TOPIC_XXXX", 0)
    run.deliver_level(queue, 0, 1, now_ms=bench.clock.now(), delay_ms=1_000)
    assert bench.visible() == [b"delayed"]
    bench.killed()
    assert bench.transactions.service.open_offsets() == [0]
    assert bench.end(first).code == 0


def test_offsets_beyond_the_end_of_the_log_hide_no_new_half_message(bench) -> None:
    bench.end(bench.send_half())
    bench.offsets.commit("CID_RMQ_SYS_TRANS", HALF_TOPIC, 0, 50)
    bench.offsets.commit("CID_RMQ_SYS_TRANS", OP_TOPIC, 0, 50)
    bench.restart()
    half = bench.send_half(b"new")
    assert bench.transactions.service.open_offsets() == [1]
    bench.restart()
    assert bench.transactions.service.open_offsets() == [1]
    assert bench.end(half).code == 0


def test_a_java_broker_continues_from_the_saved_progress(bench) -> None:
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


def test_saved_progress_covers_only_durable_records(bench, fake_backend) -> None:
    service = bench.transactions.service
    bench.end(bench.send_half())
    bench.store.backend, real = fake_backend, bench.store.backend
    service.save_progress()
    assert bench.offsets.query("CID_RMQ_SYS_TRANS", HALF_TOPIC, 0) == -1
    fake_backend.becomes_durable(bench.store.log.max_offset)
    service.save_progress()
    assert bench.offsets.query("CID_RMQ_SYS_TRANS", HALF_TOPIC, 0) == 1
    bench.store.backend = real


def test_invalid_op_records_end_no_transaction(bench) -> None:
    bench.send_half(b"one")
    for body, tags in (
        *((b"0", "x"), (b"0", None), (b"-0", "d"), (b"", "d"), (b"0.", "d"), (b"7", "d")),
        *((b"9" * 19, "d"), (b"9" * 40, "d"), (b"zero", "d")),
    ):
        properties = {} if tags is None else {"TAGS": tags}
        bench.store.put(Record(topic=OP_TOPIC, body=body, properties=properties))
    bench.restart()
    assert bench.transactions.service.open_offsets() == [0]
    bench.store.put(Record(topic=OP_TOPIC, body=b"0", properties={"TAGS": "d"}))
    bench.restart()
    assert bench.transactions.service.open_offsets() == []
