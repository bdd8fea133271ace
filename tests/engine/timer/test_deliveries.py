"""The deliveries are read from the log: exactly those, whatever else it contains."""

import random
from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest

from congreve.base.clock import ManualClock
from congreve.engine.config import StoreConfig
from congreve.engine.store import MessageStore
from congreve.engine.timer.deliveries import DeliveryScan
from congreve.engine.timer.redelivery import Redelivery
from congreve.records.message.message import Record

NOW = 1_700_000_000_000
SCHEDULE, TIMER = "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    config = StoreConfig(
        root_dir=str(tmp_path),
        mapped_file_size_commit_log=8192,
        mapped_file_size_consume_queue=20 * 7,
        max_hash_slot_num=100,
        max_index_num=400,
        flush_disk_type="ASYNC_FLUSH",
    )
    with MessageStore(config, clock=ManualClock(NOW)) as opened:
        yield opened


def park(store: MessageStore, level: int, body: bytes = b"same", **changed: str) -> None:
    target = {"DELAY": str(level), "REAL_TOPIC": "T", "REAL_QID": "1", "UNIQ_KEY": "same"}
    record = Record(topic=SCHEDULE, queue_id=level - 1, body=body, properties=target | changed)
    store.put(record)


def park_timed(store: MessageStore, due: int) -> None:
    times = {"TIMER_OUT_MS": str(due), "REAL_TOPIC": "T", "REAL_QID": "0"}
    store.put(Record(topic=TIMER, body=b"timed", properties=times))


def deliver(store: MessageStore, level: int, offset: int, count: int, shift: int = 0) -> int:
    run = Redelivery(
        store.log, store.queues, run_ns=1 << 60, present_queue=lambda _, queue: queue + shift
    )
    queue = store.queues.get(SCHEDULE, level - 1)
    return run.deliver_level(queue, offset, count, now_ms=NOW + 10_000_000, delay_ms=1_000)


def found(store: MessageStore, start: int, offsets: dict[int, int]) -> dict[int, int]:
    return DeliveryScan(store.log, store.queues).levels(start, offsets)


@pytest.mark.parametrize("seed", range(5))
def test_every_older_delay_offset_file_leads_to_the_current_offsets(
    store: MessageStore, seed: int
) -> None:
    """Messages that are all alike, others between them, some that cannot be delivered."""
    chance = random.Random(seed)
    offsets = {1: 0, 2: 0, 3: 0}
    statements = [(0, dict(offsets))]
    for _ in range(300):
        level = chance.randrange(1, 4)
        what = chance.random()
        if what < 0.4:
            park(store, level)
        elif what < 0.5:
            park(store, level, REAL_TOPIC=chance.choice(("", "bad topic", "T")), REAL_QID="x")
        elif what < 0.55:
            park(store, level, REAL_TOPIC="RMQ_SYS_TRANS_HALF_TOPIC")
        elif what < 0.7:
            store.put(Record(topic="T", queue_id=1, body=b"other", properties={"DELAY": "1"}))
        else:
            offsets[level] = deliver(store, level, offsets[level], chance.randrange(1, 6))
        statements.append((store.log.max_offset, dict(offsets)))
    end = store.log.max_offset
    for start, said in statements:
        for level, offset in found(store, start, said).items():
            # Only entries that can never be delivered may be between the two offsets.
            assert said[level] <= offset <= offsets[level]
            deliver(store, level, offset, offsets[level] - offset)
            assert store.log.max_offset == end


def test_a_forged_copy_moves_no_level(store: MessageStore) -> None:
    for _ in range(3):
        park(store, 1)
    forged = {"DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "1", "UNIQ_KEY": "other"}
    store.put(Record(topic="T", queue_id=1, body=b"same", properties=forged))
    assert found(store, 0, {1: 0}) == {1: 0}


@pytest.mark.parametrize("level", ["0", "-1", "99", "99999999999999999999", "x"])
def test_invalid_levels_are_skipped(store: MessageStore, level: str) -> None:
    park(store, 1)
    forged = {"DELAY": level, "REAL_TOPIC": "T", "REAL_QID": "1"}
    store.put(Record(topic="T", queue_id=1, body=b"same", properties=forged))
    assert found(store, 0, {1: 0}) == {1: 0}


def test_timed_messages_that_were_delivered_or_parked_again_are_found(store: MessageStore) -> None:
    for due in (5, 3, 9, NOW + (1 << 40)):
        park_timed(store, due)
    queue = store.queues.get(TIMER, 0)
    offsets = queue.entries(0, 4)["physical_offset"].astype(numpy.int64)
    wakes = queue.entries(0, 4)["tags_code"]
    start = store.log.max_offset
    store.put(Record(topic="T", body=b"committed", sys_flag=8, prepared_offset=int(offsets[2]) + 7))
    run = Redelivery(store.log, store.queues, run_ns=1 << 60, roll_ms=1_000)
    assert run.deliver(offsets[[1, 3]].copy().data, now_ms=NOW) == 2
    scan = DeliveryScan(store.log, store.queues)
    wanted = [int(wakes[1]), int(offsets[1]), int(wakes[3]), int(offsets[3])]
    assert scan.timed(start, queue).tolist() == wanted
    assert scan.timed(store.log.max_offset, queue).tolist() == []
