"""The index of timed messages survives runs, merges, crashes, and a clock that is set back."""

import random
import shutil
import time
from pathlib import Path

import numpy
import pytest
from harness.slowness import limit_s

from congreve.base.clock import ManualClock
from congreve.engine.config import StoreConfig
from congreve.engine.errors import StoreError
from congreve.engine.store import MessageStore
from congreve.engine.timer.index import TimerIndex
from congreve.engine.timer.redelivery import Redelivery
from congreve.records.message.message import Record

NOW = 1_700_000_000_000
TOPIC = "rmq_sys_wheel_timer"
FOREVER = 1 << 60
DAY = 24 * 3_600_000


class Bench:
    """A store with an index that writes runs early and merges them often."""

    def __init__(self, root: Path) -> None:
        self.clock = ManualClock(NOW)
        self.config = StoreConfig(
            root_dir=str(root),
            flush_disk_type="ASYNC_FLUSH",
            mapped_file_size_commit_log=1 << 20,
            max_hash_slot_num=100,
            max_index_num=400,
            message_index_enable=False,
        )
        self.open()

    def open(self) -> None:
        self.store = MessageStore(self.config, clock=self.clock)
        self.store.start()
        self.index = self.make_index()
        self.index.open()
        self.delivery = Redelivery(self.store.log, self.store.queues, run_ns=1 << 60)

    def make_index(self) -> TimerIndex:
        return TimerIndex(
            self.config,
            self.store.queues,
            self.store.log,
            repair=self.store.repair,
            wait_final=self.store.wait_final,
            memory_max=50,
            runs_max=4,
        )

    def close(self) -> None:
        self.index.close()
        self.store.close()

    def crash(self) -> None:
        """The process was killed: its written files remain, its state in memory does not."""
        self.store.close()

    def park(self, *delays: int) -> list[tuple[int, int]]:
        keys = []
        for delay in delays:
            due = self.clock.now() + delay
            properties = {"TIMER_OUT_MS": str(due), "REAL_TOPIC": "T", "REAL_QID": "0"}
            put = self.store.put(Record(topic=TOPIC, body=b"", properties=properties))
            keys.append((due, put.physical_offset))
        return keys

    def ingest(self) -> None:
        while self.index.ingest():
            self.index.work_now()

    def take(self, limit: int = 1_000_000, dealt_with: int | None = None) -> list[tuple[int, int]]:
        """Due entries, of which all or some are marked as done."""
        self.ingest()
        rows = self.index.take(self.clock.now(), limit)
        count = len(rows) if dealt_with is None else min(dealt_with, len(rows))
        offsets = numpy.ascontiguousarray(rows[:count, 1])
        assert self.delivery.deliver(offsets.data, now_ms=self.clock.now()) == count
        self.index.handled(rows, count)
        self.index.work_now()
        return [(wake, offset) for wake, offset, _ in rows[:count].tolist()]


@pytest.fixture
def bench(tmp_path: Path):
    made = Bench(tmp_path)
    yield made
    made.close()


def test_entries_are_due_in_the_order_of_their_times(bench):
    keys = bench.park(500, 100, 300, 100)
    bench.ingest()
    assert bench.index.next_wake == NOW + 100
    assert bench.take() == []
    bench.clock.advance(300)
    assert bench.take() == [keys[1], keys[3], keys[2]]
    assert bench.index.next_wake == NOW + 500
    bench.clock.advance(200)
    assert bench.take() == [keys[0]]
    assert bench.index.next_wake > FOREVER


def test_a_delivery_that_another_log_can_replace_is_not_saved(bench):
    bench.index.work_now(save=True)
    file = Path(bench.config.own_dir) / "timer.json"
    before = file.read_text()
    bench.store.show_below(bench.park(100)[0][1] + 1_000)
    bench.clock.advance(100)
    bench.ingest()
    bench.store.show_below(bench.store.log.max_offset)
    assert len(bench.take()) == 1
    with pytest.raises(StoreError, match="not confirmed"):
        bench.index.work_now(save=True)
    assert file.read_text() == before
    bench.store.show_below(bench.store.log.max_offset)
    bench.index.work_now(save=True)
    assert file.read_text() != before


def test_memory_stays_small_with_any_number_of_pending_entries(bench):
    chance = random.Random(1)
    keys = bench.park(*(chance.randrange(1, 100_000) for _ in range(1_000)))
    bench.ingest()
    in_memory, on_disk = bench.index.counts
    assert in_memory < 50 and in_memory + on_disk == 1_000
    bench.clock.advance(100_000)
    assert bench.take() == sorted(keys)


@pytest.mark.parametrize("how", ["close", "crash"])
def test_a_restart_continues_exactly_where_it_stopped(bench, how):
    chance = random.Random(2)
    keys = sorted(bench.park(*(chance.randrange(1, 1_000) for _ in range(700))))
    bench.clock.advance(400)
    got = []
    for _ in range(7):
        got += bench.take(limit=60, dealt_with=40)
        keys = sorted(keys + bench.park(*(chance.randrange(1, 600) for _ in range(5))))
        bench.close() if how == "close" else bench.crash()
        bench.open()
    bench.clock.advance(1_000)
    while piece := bench.take():
        got += piece
    assert got == sorted(got) and got == keys


def test_finished_runs_are_removed_from_the_disk(bench):
    bench.park(*range(1, 400))
    bench.clock.advance(1_000)
    bench.take()
    bench.index.work_now(save=True)
    assert list((Path(bench.config.own_dir) / "timer").iterdir()) == []
    assert bench.index.counts[1] == 0


@pytest.mark.parametrize("lost", ["timer.json", "timer", "a run", "a torn run"])
def test_a_lost_index_is_rebuilt_from_the_queue(bench, lost, caplog):
    keys = sorted(bench.park(*range(1, 400)))
    bench.clock.advance(200)
    done = bench.take()
    assert done == keys[:200]
    bench.close()
    own = Path(bench.config.own_dir)
    if lost == "timer.json":
        (own / lost).unlink()
        (own / "timer.json.bak").unlink(missing_ok=True)
    elif lost == "timer":
        shutil.rmtree(own / "timer")
    else:
        run = sorted((own / "timer").iterdir())[0]
        if lost == "a run":
            run.unlink()
        else:
            run.write_bytes(run.read_bytes()[:-3])
    bench.open()
    bench.clock.advance(200)
    assert bench.take() == keys[200:]


def test_state_that_was_lost_is_rebuilt_from_the_log(bench):
    keys = sorted(bench.park(*range(1, 200)))
    bench.clock.advance(100)
    bench.take()
    bench.close()
    for found in Path(bench.config.own_dir).glob("timer*"):
        shutil.rmtree(found) if found.is_dir() else found.unlink()
    bench.open()
    bench.clock.advance(100)
    assert bench.take() == keys[100:]


def test_a_second_crash_loses_no_message_that_the_log_has(bench):
    """The clock is set back before the start: nothing is due, and everything is still pending."""
    keys = sorted(bench.park(*range(1, 100)))
    bench.clock.advance(60)
    assert bench.take() == keys[:60]
    for _ in range(3):
        bench.clock.set(NOW - 1_000)
        bench.crash()
        bench.open()
        assert bench.take() == []
        bench.index.work_now(save=True)
    bench.clock.set(NOW + 30)
    assert bench.take() == []
    bench.index.work_now(save=True)
    bench.crash()
    bench.open()
    bench.clock.set(NOW + 100)
    assert bench.take() == keys[60:]
    bench.index.work_now(save=True)
    assert bench.index._log_end == bench.store.log.max_offset


@pytest.mark.parametrize("crash", ["never", "before they are met", "after"])
def test_a_clock_that_is_set_back_loses_and_repeats_no_message(bench, crash):
    early = bench.park(*range(1, 120))
    bench.clock.advance(100)
    assert bench.take() == early[:100]
    bench.clock.set(NOW - 3_600_000)
    late = bench.park(*range(1, 120))
    if crash == "after":
        bench.ingest()
    if crash != "never":
        bench.crash()
        bench.open()
    assert bench.take() == []
    bench.clock.advance(60)
    assert bench.take() == late[:60]
    if crash != "never":
        bench.crash()
        bench.open()
    bench.clock.set(NOW + 1_000)
    assert bench.take() + bench.take() == late[60:] + early[100:]


def test_a_failed_write_does_not_change_the_index(bench):
    keys = bench.park(*range(1, 100))
    bench.index.ingest()
    job = bench.index.job()
    assert job is not None and bench.index.job() is None
    bench.index.abandon()
    bench.clock.advance(100)
    assert bench.take() == keys


def test_entries_may_be_taken_while_a_run_is_written(bench):
    keys = bench.park(*range(1, 100))
    bench.index.ingest()
    job = bench.index.job()
    bench.clock.advance(30)
    rows = bench.index.take(bench.clock.now(), 1_000)
    bench.index.handled(rows, 20)
    more = bench.park(5, 500)
    bench.index.ingest()
    job()()
    bench.clock.advance(1_000)
    assert bench.take() == sorted(keys[20:] + more)


def test_a_merge_of_runs_while_entries_are_taken(bench):
    keys = sorted(bench.park(*range(1, 252)))
    while bench.index.ingest():
        pass
    for _ in range(5):
        bench.index._memory_max = 1
        bench.park(5_000)
        bench.index.ingest()
        job = bench.index.job()
        job()()
    bench.index._memory_max = 1_000
    job = bench.index.job()
    assert job is not None
    bench.clock.advance(100)
    rows = bench.index.take(bench.clock.now(), 1_000)
    bench.index.handled(rows, 90)
    job()()
    bench.clock.advance(1_000)
    assert bench.take() == keys[90:]


def test_a_wake_up_is_no_later_than_the_expiry_of_its_segment(bench):
    """At that time the message is written again, and continues to wait."""
    bench.park(30 * DAY)
    bench.ingest()
    assert bench.index.next_wake == NOW + 36 * 3_600_000
    queue = bench.store.queues.get(TOPIC, 0)
    assert queue[0][2] == NOW + 36 * 3_600_000
    bench.crash()
    shutil.rmtree(bench.config.consume_queue_dir)
    (Path(bench.config.root_dir) / "abort").touch()
    bench.open()
    assert bench.store.queues.get(TOPIC, 0)[0][2] == NOW + 36 * 3_600_000
    assert numpy.iinfo(numpy.int64).max > bench.index.next_wake


@pytest.mark.parametrize("delay", [DAY, 30 * DAY])
def test_an_ingest_of_what_is_due_in_a_month_takes_no_5_ms(bench, delay):
    """Entries that say when to write the message again are checked one by one."""
    longest = []
    while len(longest) < 10:  # one quick run shows it: noise and collections only add time
        bench.park(*[delay] * 10_000)
        used, taken = [], []
        while not taken or taken[-1]:
            begin = time.thread_time()
            taken.append(bench.index.ingest())
            used.append(time.thread_time() - begin)
            bench.index.work_now()
        assert sum(taken) == 10_000
        longest.append(max(used))
        if longest[-1] < limit_s(0.005):
            return
    pytest.fail(f"the longest ingest of each run took {longest} s")
