"""Parked messages move to their queues: in order, complete, once, and damaged ones are skipped."""

import errno
import shutil
from array import array
from pathlib import Path
from typing import Any

import msgspec
import pytest

from congreve.base.clock import ManualClock
from congreve.engine.config import StoreConfig
from congreve.engine.log.watch import watch
from congreve.engine.store import MessageStore
from congreve.engine.timer.deliveries import DeliveryScan
from congreve.engine.timer.redelivery import Redelivery
from congreve.io_backends.fault.fault import FaultBackend
from congreve.io_backends.fault.plan import FaultPlan
from congreve.io_backends.mapped.mapped import MmapBackend
from congreve.records.message.message import Record
from congreve.records.record import decode_record, string_hash

NOW = 1_700_000_000_000
SCHEDULE = "SCHEDULE_TOPIC_XXXX"


def config_of(root: Path, **settings: object) -> StoreConfig:
    return StoreConfig(
        root_dir=str(root),
        mapped_file_size_commit_log=4096,
        mapped_file_size_consume_queue=20 * 7,
        max_hash_slot_num=100,
        max_index_num=400,
        flush_disk_type="ASYNC_FLUSH",
        **settings,  # type: ignore[arg-type]
    )


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock):
    with MessageStore(config_of(tmp_path), clock=clock) as opened:
        yield opened


def parked(number: int, topic: str = "orders", level: int = 1, **properties: str) -> Record:
    return Record(
        topic=SCHEDULE,
        queue_id=level - 1,
        body=b"message %d" % number,
        properties={
            "TAGS": "TagA",
            "DELAY": str(level),
            "REAL_TOPIC": topic,
            "REAL_QID": str(number % 3),
            **properties,
        },
    )


def redelivery(store: MessageStore, **settings: Any) -> Redelivery:
    """A Redelivery without a time limit, because a test machine may be slow."""
    return Redelivery(store.log, store.queues, run_ns=1 << 60, **settings)


def bodies(store: MessageStore, topic: str = "orders", queue_id: int = 0) -> list[bytes]:
    entries = store.queues.get(topic, queue_id).entries(0, 1 << 40)
    records = [store.read(offset) for offset in entries["physical_offset"].tolist()]
    return [decode_record(record).body for record in records if record is not None]


def level_queue(store: MessageStore, level: int = 1):
    return store.queues.get(SCHEDULE, level - 1)


def test_due_messages_arrive_in_order_across_files_and_segments(store, clock):
    for number in range(60):
        store.put(parked(number))
    clock.advance(1_000)
    run = redelivery(store)
    after = run.deliver_level(level_queue(store), 0, 1000, now_ms=clock.now(), delay_ms=1_000)
    assert (after, run.delivered, run.skipped) == (60, 60, 0)
    assert run.end == store.log.max_offset
    assert len(store.log.segments) > 4
    for queue_id in range(3):
        assert bodies(store, queue_id=queue_id) == [
            b"message %d" % n for n in range(60) if n % 3 == queue_id
        ]
    record = decode_record(store.read(store.queues.get("orders", 0)[0][0]))
    assert record.properties == parked(0).properties
    assert store.queues.get("orders", 0)[0][2] == string_hash("TagA")


def test_messages_that_are_not_due_stay_and_the_next_time_is_returned(store, clock):
    store.put(parked(0))
    clock.advance(400)
    store.put(parked(3))
    run = redelivery(store)
    queue = level_queue(store)
    assert run.deliver_level(queue, 0, 10, now_ms=NOW + 999, delay_ms=1_000) == 0
    assert (run.delivered, run.next_due, run.end) == (0, NOW + 1_000, 0)
    assert run.deliver_level(queue, 0, 10, now_ms=NOW + 1_000, delay_ms=1_000) == 1
    assert (run.delivered, run.next_due) == (1, NOW + 1_400)
    assert bodies(store) == [b"message 0"]


def test_a_run_ends_at_its_limit(store):
    for number in range(0, 30, 3):
        store.put(parked(number))
    run = redelivery(store)
    queue = level_queue(store)
    assert run.deliver_level(queue, 0, 4, now_ms=NOW + 5_000, delay_ms=1_000) == 4
    assert run.deliver_level(queue, 4, 100, now_ms=NOW + 5_000, delay_ms=1_000) == 10
    assert bodies(store) == [b"message %d" % n for n in range(0, 30, 3)]


def test_a_full_disk_in_the_middle_of_a_piece_neither_loses_nor_repeats_messages(tmp_path, clock):
    creates: dict[int, int] = {}
    backend = FaultBackend(MmapBackend(), FaultPlan(creates=creates))
    with MessageStore(config_of(tmp_path), clock=clock, backend=backend) as store:
        for number in range(0, 210, 3):
            store.put(parked(number))
        creates.update(dict.fromkeys(range(1_000), errno.ENOSPC))
        run, queue = redelivery(store), level_queue(store)
        at = run.deliver_level(queue, 0, 70, now_ms=NOW + 1_000, delay_ms=1_000)
        assert run.failure is not None
        assert 0 < at < 70
        assert len(bodies(store)) == run.delivered == at
        creates.clear()
        assert run.deliver_level(queue, at, 70, now_ms=NOW + 1_000, delay_ms=1_000) == 70
        assert bodies(store) == [b"message %d" % n for n in range(0, 210, 3)]


def test_a_run_ends_after_large_messages(tmp_path, clock):
    settings = {"root_dir": str(tmp_path), "flush_disk_type": "ASYNC_FLUSH"}
    with MessageStore(StoreConfig(**settings), clock=clock) as store:
        for number in range(16):
            store.put(msgspec.structs.replace(parked(3 * number), body=bytes(500_000)))
        run = redelivery(store)
        queue = level_queue(store)
        assert run.deliver_level(queue, 0, 16, now_ms=NOW + 1_000, delay_ms=1_000) == 5


def test_a_time_later_than_the_level_allows_counts_as_now(store):
    """The table of levels was changed: the reference delivers at once, too."""
    store.put(parked(0, level=18))
    run = redelivery(store)
    queue = level_queue(store, 18)
    assert run.deliver_level(queue, 0, 10, now_ms=NOW + 1, delay_ms=1_000) == 1


def test_d5_a_tag_hash_for_a_time_does_not_deliver_at_once(store):
    """The reference writes this when it recovers before it has read the delay levels."""
    record = parked(0)
    store.log.append_record(record, level_queue(store), string_hash("TagA"))
    run = redelivery(store)
    queue = level_queue(store)
    assert run.deliver_level(queue, 0, 10, now_ms=NOW + 999, delay_ms=1_000) == 0
    assert run.next_due == NOW + 1_000
    assert run.deliver_level(queue, 0, 10, now_ms=NOW + 1_000, delay_ms=1_000) == 1


def set_aside(store) -> list[tuple[bytes, str, str]]:
    """Body and target of each message in the topic of undeliverable messages."""
    queue = store.queues.get("rmq_sys_undeliverable_messages", 0)
    records = [decode_record(store.read(queue[at][0])) for at in range(queue.max)]
    return [(r.body, r.properties["REAL_TOPIC"], r.properties["REAL_QID"]) for r in records]


@pytest.mark.parametrize("length", [127, 128, 255])
def test_a_message_for_a_topic_that_is_too_long_is_set_aside_and_delays_no_other(store, length):
    store.put(parked(0, topic="a" * length))
    store.put(parked(3))
    run = redelivery(store)
    assert run.deliver_level(level_queue(store), 0, 10, now_ms=NOW + 1_000, delay_ms=1_000) == 2
    assert bodies(store) == [b"message 3"]
    lost = [] if length == 127 else [(b"message 0", "a" * length, "0")]
    assert (set_aside(store), run.undeliverable) == (lost, len(lost))


def test_messages_that_are_gone_are_skipped_and_those_without_a_target_set_aside(store):
    store.put(parked(0))
    store.put(parked(3, REAL_QID="none"))
    store.put(parked(6, topic="../../etc"))
    store.put(parked(9, topic="RMQ_SYS_TRANS_HALF_TOPIC"))
    queue = level_queue(store)
    queue.append(4, 1 << 40, 200, NOW)
    run = redelivery(store)
    assert run.deliver_level(queue, 0, 10, now_ms=NOW + 1_000, delay_ms=1_000) == 5
    assert (run.delivered, run.skipped, run.undeliverable) == (1, 1, 3)
    assert bodies(store) == [b"message 0"]
    assert set_aside(store) == [
        (b"message 3", "orders", "none"),
        (b"message 6", "../../etc", "0"),
        (b"message 9", "RMQ_SYS_TRANS_HALF_TOPIC", "0"),
    ]
    assert store.queues.find("RMQ_SYS_TRANS_HALF_TOPIC", 0) is None
    # Otherwise the store's stop would wait until the log is durable up to that entry's record.
    queue.truncate_to(4)


def test_queues_with_waiting_pulls_are_notified(store):
    for number in range(3):
        store.put(parked(number))
    watch(store.log.lock, store.queues.get("orders", 1), 1)
    run = redelivery(store)
    run.deliver_level(level_queue(store), 0, 10, now_ms=NOW + 1_000, delay_ms=1_000)
    assert [(queue.topic, queue.queue_id) for queue in run.arrived()] == [("orders", 1)]


def test_a_message_for_a_queue_that_its_topic_has_lost_goes_to_one_that_it_has(store):
    for number in range(6):
        store.put(parked(number))
    at = store.put(msgspec.structs.replace(timed(9, NOW), properties=parked(2).properties))
    run = redelivery(store, present_queue=lambda topic, queue_id: min(queue_id, 1))
    assert run.deliver_level(level_queue(store), 0, 9, now_ms=NOW + 1_000, delay_ms=1_000) == 6
    assert run.deliver(array("q", [at.physical_offset]), now_ms=NOW) == 1
    assert bodies(store, queue_id=0) == [b"message 0", b"message 3"]
    moved = [b"message %d" % number for number in (1, 2, 4, 5, 9)]
    assert bodies(store, queue_id=1) == moved
    assert store.queues.find("orders", 2) is None
    entry = store.queues.get("orders", 1)[1]
    assert decode_record(store.read(entry[0])).queue_id == 1


def test_delivery_to_a_deleted_topic_creates_its_queue_again(store):
    run = redelivery(store)
    store.put(parked(0))
    run.deliver_level(level_queue(store), 0, 10, now_ms=NOW + 1_000, delay_ms=1_000)
    store.delete_topic("orders")
    store.put(parked(3))
    run.deliver_level(level_queue(store), 1, 10, now_ms=NOW + 1_000, delay_ms=1_000)
    assert bodies(store) == [b"message 3"]


def test_recovery_finds_delivered_messages_as_ordinary_ones(tmp_path, clock):
    config = config_of(tmp_path)
    with MessageStore(config, clock=clock) as store:
        for number in range(20):
            store.put(parked(number))
        run = redelivery(store)
        run.deliver_level(level_queue(store), 0, 100, now_ms=NOW + 1_000, delay_ms=1_000)
        wanted = [bodies(store, queue_id=n) for n in range(3)]
    shutil.rmtree(tmp_path / "consumequeue")
    shutil.rmtree(tmp_path / "congreve")
    (tmp_path / "abort").touch()
    with MessageStore(config, clock=clock) as store:
        assert [bodies(store, queue_id=n) for n in range(3)] == wanted
        assert store.queues.get("orders", 0)[0][2] == string_hash("TagA")


def timed(number: int, due_ms: int) -> Record:
    return Record(
        topic="rmq_sys_wheel_timer",
        body=b"message %d" % number,
        properties={"REAL_TOPIC": "orders", "REAL_QID": "0", "TIMER_OUT_MS": str(due_ms)},
    )


def test_timed_messages_are_delivered_in_the_given_order(store):
    at = [store.put(timed(n, NOW + 10)).physical_offset for n in range(40)]
    run = redelivery(store)
    assert run.deliver(array("q", reversed(at)), now_ms=NOW + 10) == 40
    assert bodies(store) == [b"message %d" % n for n in reversed(range(40))]


def test_a_timed_message_without_a_target_is_set_aside_once(store):
    start = msgspec.structs.replace(
        timed(0, NOW + 10), properties={"TIMER_OUT_MS": str(NOW + 10), "REAL_TOPIC": "a" * 128}
    )
    at = store.put(start).physical_offset
    end = store.log.max_offset
    run = redelivery(store)
    assert run.deliver(array("q", [at]), now_ms=NOW + 10) == 1
    assert (run.delivered, run.skipped, run.undeliverable) == (0, 0, 1)
    record = decode_record(store.read(end))
    assert record.topic == "rmq_sys_undeliverable_messages"
    assert (record.body, record.properties) == (start.body, start.properties)
    scan = DeliveryScan(store.log, store.queues)
    assert scan.timed(end, store.queues.get("rmq_sys_wheel_timer", 0)).tolist()[1::2] == [at]


def test_a_timed_message_that_is_not_due_is_written_again(store):
    at = store.put(timed(0, NOW + 10_000)).physical_offset
    run = redelivery(store, roll_ms=4_000)
    assert run.deliver(array("q", [at]), now_ms=NOW + 1_000) == 1
    queue = store.queues.get("rmq_sys_wheel_timer", 0)
    assert bodies(store) == []
    assert queue.max == 2
    offset, _, wake = queue[1]
    assert wake == NOW + 5_000
    assert decode_record(store.read(offset)).properties == timed(0, NOW + 10_000).properties
    run.deliver(array("q", [offset]), now_ms=NOW + 10_000)
    assert bodies(store) == [b"message 0"]


def test_a_run_ends_when_its_time_is_over(store):
    for number in range(0, 300, 3):
        store.put(parked(number))
    run = Redelivery(store.log, store.queues, run_ns=0)
    at = run.deliver_level(level_queue(store), 0, 100, now_ms=NOW + 1_000, delay_ms=1_000)
    assert 0 < at < 100 and len(bodies(store)) == at
