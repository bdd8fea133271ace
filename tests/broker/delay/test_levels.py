"""Delay levels: delivered in order, when due and not before, and once across every restart."""

import asyncio
import os
from pathlib import Path

import pytest
from harness.stores.small_store import small_store

from congreve.base.clock import ManualClock
from congreve.broker.delay.levels import DelayOffsets, ScheduleMessageService
from congreve.broker.delay.targets import Targets
from congreve.engine.file_sizes import FILLER_SIZE
from congreve.engine.log.watch import watch
from congreve.engine.store import MessageStore
from congreve.records.message.message import Record
from congreve.records.record import decode_record
from congreve.remoting.messages import fastjson

NOW = 1_700_000_000_000
SCHEDULE = "SCHEDULE_TOPIC_XXXX"


class Bench:
    """A store with the delay service, opened and closed as by a broker, or left as by a crash."""

    def __init__(self, root: Path, levels: str = "1s 5s 10s") -> None:
        self.clock = ManualClock(NOW)
        self.config = small_store(
            root, message_delay_level=levels, mapped_file_size_commit_log=64 << 10
        )
        self.number = 0
        self.saved = ""
        self.open()

    def open(self) -> None:
        self.store = MessageStore(self.config, clock=self.clock, on_arrival=self.arrived)
        self.store.start()
        self.notified: list[str] = []
        self.set_aside = 0
        self.service = ScheduleMessageService(
            self.store, self.clock, targets=Targets(undeliverable=self.count_set_aside)
        )
        if self.saved:
            self.service.load(self.saved)
        self.service.recover()

    def arrived(self, queue) -> None:
        self.notified.append(queue.topic)
        if queue.topic == SCHEDULE:
            self.service.arrived(queue)

    def count_set_aside(self) -> None:
        self.set_aside += 1

    def save(self) -> None:
        self.saved = fastjson.dumps_pretty(self.service.snapshot())

    def close(self) -> None:
        self.service.stop()
        self.store.close()

    def park(self, level: int, count: int = 1) -> None:
        for _ in range(count):
            properties = {"DELAY": str(level), "REAL_TOPIC": "T", "REAL_QID": "0"}
            body = b"%d" % self.number
            self.store.put(
                Record(topic=SCHEDULE, queue_id=level - 1, body=body, properties=properties)
            )
            self.number += 1

    def delivered(self) -> list[int]:
        """The messages, without offsets whose record the log has lost."""
        entries = self.store.queues.get("T", 0).entries(0, 1 << 40)
        found = entries[entries["size"] != FILLER_SIZE]
        return [
            int(decode_record(self.store.read(at)).body) for at in found["physical_offset"].tolist()
        ]


@pytest.fixture
def bench(tmp_path: Path):
    made = Bench(tmp_path)
    yield made
    made.close()


def rounds(bench: Bench) -> float | None:
    """Deliver as the timer would, without waiting; returns the result of the last round."""
    wait = 0.0
    while wait == 0.0:
        wait = bench.service.deliver_due()
    return wait


async def test_each_level_delivers_when_it_is_due(bench):
    bench.service.start()
    bench.park(3)
    bench.park(1)
    bench.park(2)
    assert rounds(bench) == 1.0 and bench.delivered() == []
    bench.clock.advance(999)
    assert rounds(bench) == 0.001 and bench.delivered() == []
    bench.clock.advance(1)
    rounds(bench)
    assert bench.delivered() == [1]
    bench.clock.advance(4_000)
    rounds(bench)
    assert bench.delivered() == [1, 2]
    bench.clock.advance(5_000)
    assert rounds(bench) is None
    assert bench.delivered() == [1, 2, 0]
    assert bench.service.offset_table == {1: 1, 2: 1, 3: 1}


async def test_many_due_messages_keep_their_order(bench):
    bench.service.start()
    bench.park(1, 9_500)
    bench.clock.advance(1_000)
    assert bench.service.deliver_due() == 0.0
    assert 0 < len(bench.delivered()) < 9_500
    rounds(bench)
    assert bench.delivered() == list(range(9_500))


async def test_the_timer_starts_delivery(tmp_path):
    bench = Bench(tmp_path, "0s")
    bench.service.start()
    await asyncio.sleep(0)
    bench.park(1)
    for _ in range(200):
        if bench.delivered():
            break
        await asyncio.sleep(0.005)
    assert bench.delivered() == [0]
    bench.close()


async def test_an_idle_service_sets_no_timer(bench):
    bench.service.start()
    await asyncio.sleep(0.01)
    assert not bench.service._timer.is_set
    bench.park(2)
    assert bench.service._timer.is_set


async def test_waiting_consumers_are_notified(bench):
    bench.service.start()
    bench.park(1)
    watch(bench.store.log.lock, bench.store.queues.get("T", 0), 1)
    bench.clock.advance(1_000)
    rounds(bench)
    assert bench.notified == [SCHEDULE, "T"]


async def test_a_restart_continues_at_the_saved_offsets(bench):
    bench.service.start()
    bench.park(1, 5)
    bench.clock.advance(1_000)
    rounds(bench)
    bench.park(1, 5)
    bench.save()
    bench.close()
    bench.open()
    bench.service.start()
    rounds(bench)
    assert bench.delivered() == [0, 1, 2, 3, 4]
    bench.clock.advance(1_000)
    rounds(bench)
    assert bench.delivered() == list(range(10))


@pytest.mark.parametrize("saved", ["before", "never"])
async def test_d23_messages_delivered_after_the_last_save_are_not_delivered_again(bench, saved):
    bench.service.start()
    bench.park(1, 5)
    bench.clock.advance(1_000)
    if saved == "before":
        rounds(bench)
        bench.save()
        bench.park(1, 5)
        bench.clock.advance(1_000)
    rounds(bench)
    before = bench.delivered()
    for _ in range(2):
        bench.close()  # without save(): as if it was killed
        bench.open()
        bench.service.start()
        rounds(bench)
    assert bench.delivered() == before


@pytest.mark.parametrize("kept", [0, 1, 7, 19, 20])
async def test_only_deliveries_that_the_log_has_count(bench, kept):
    """After a kill with the pool or io_uring backend, or a power cut, the log's tail is not on
    disk."""
    bench.service.start()
    bench.park(1, 30)
    bench.clock.advance(1_000)
    bench.park(2, 1)
    delivered = bench.store.queues.get("T", 0)
    while delivered.max < 30:  # a run ends after 10 ms, in which a busy machine delivers only a few
        bench.service._deliver(1, bench.store.queues.get(SCHEDULE, 0), bench.clock.now())
    entries = delivered.entries(0, 30)
    end = int(entries["physical_offset"][kept])
    bench.close()
    for name in sorted(os.listdir(bench.store.log.folder)):
        with open(os.path.join(bench.store.log.folder, name), "r+b") as file:
            size = os.fstat(file.fileno()).st_size
            file.truncate(min(max(end - int(name), 0), size))
            file.truncate(size)
    os.unlink(os.path.join(bench.config.own_dir, "queues.json"))
    bench.open()
    assert len(bench.delivered()) == kept
    assert bench.service.offset_table.get(1, 0) == kept
    bench.service.start()
    rounds(bench)
    assert bench.delivered() == list(range(30))


async def test_offsets_beyond_the_end_of_the_log_are_not_used(bench):
    bench.service.start()
    bench.park(1, 3)
    bench.clock.advance(1_000)
    rounds(bench)
    bench.save()
    beyond = DelayOffsets(offset_table={1: 2}, log_end=1 << 40).with_checksum()
    bench.saved = fastjson.dumps_pretty(beyond)
    bench.close()
    bench.open()
    bench.service.start()
    rounds(bench)
    assert bench.delivered() == [0, 1, 2]


async def test_offsets_written_by_the_reference_are_used(bench):
    """The reference's file names no end of the log, and it may have delivered messages again."""
    bench.service.start()
    bench.park(1, 4)
    bench.clock.advance(1_000)
    rounds(bench)
    bench.saved = '{"offsetTable":{1:2}}'
    bench.close()
    bench.open()
    bench.service.start()
    rounds(bench)
    assert bench.delivered() == [0, 1, 2, 3, 2, 3]


@pytest.mark.parametrize(
    "text",
    [
        '{"x":1}',
        '{"offsetTable":{}}',
        '{"offsetTable":{2:1}}',
    ],
)
async def test_the_offset_of_a_level_missing_in_the_file_comes_from_the_log(bench, text):
    bench.service.start()
    bench.park(1, 20)
    bench.park(2)
    bench.clock.advance(5_000)
    rounds(bench)
    assert len(bench.delivered()) == 21
    bench.park(1)
    bench.saved = text
    bench.close()
    bench.open()
    bench.service.start()
    bench.clock.advance(1_000)
    rounds(bench)
    assert sorted(bench.delivered()) == list(range(22))


@pytest.mark.parametrize("text", ['{"offsetTable":{}}', '{"offsetTable":{2:1}}'])
async def test_a_broker_starts_with_a_level_of_expired_messages(bench, text):
    bench.park(1, 2)
    for _ in range(200):
        bench.store.put(Record(topic="Other", body=bytes(1_000)))
    bench.saved = text
    bench.close()
    for segment in sorted(Path(bench.config.commit_log_dir).iterdir())[:-1]:
        segment.unlink()
    bench.open()
    queue = bench.store.queues.get(SCHEDULE, 0)
    assert queue.min == queue.max == 2
    bench.service.start()
    assert bench.service.offset_table[1] == 2


async def test_the_offset_file_is_rewritten_before_a_start_would_read_too_much(bench, monkeypatch):
    bench.service.start()
    bench.save()
    assert not bench.service.dirty
    monkeypatch.setattr("congreve.broker.delay.levels.READ_MAX", 1_000)
    bench.store.put(Record(topic="T", body=bytes(2_000)))
    assert bench.service.dirty


@pytest.mark.parametrize("offset", [-3, 99])
async def test_an_offset_outside_of_the_queue_is_corrected(bench, offset):
    bench.park(1, 3)
    bench.saved = f'{{"offsetTable":{{1:{offset},7:4}}}}'
    bench.close()
    bench.open()
    bench.service.start()
    assert bench.service.offset_table == {1: 3 if offset > 0 else 0, 7: 4}


async def test_shorter_delay_levels_deliver_overdue_messages_at_once(bench):
    bench.park(3, 2)
    bench.close()
    bench.config.message_delay_level = "1s 2s 3s"
    bench.open()
    bench.service.start()
    rounds(bench)
    assert bench.delivered() == [0, 1]


async def test_messages_of_a_removed_level_wait_until_it_is_restored(bench):
    bench.park(3)
    bench.clock.advance(60_000)
    bench.close()
    bench.config.message_delay_level = "1s"
    bench.open()
    bench.service.start()
    assert rounds(bench) is None and bench.delivered() == []


async def test_messages_wait_while_the_store_refuses_them(bench, caplog):
    bench.service.start()
    bench.park(1)
    bench.clock.advance(1_000)
    bench.store.health.set_disk_full("the disk is full")
    assert bench.service.deliver_due() > 0
    assert bench.delivered() == [] and "the disk is full" in caplog.text
    bench.store.health.set_disk_full(None)
    rounds(bench)
    assert bench.delivered() == [0]


async def test_no_message_is_lost_on_a_full_disk(bench, caplog):
    bench.service.start()
    bench.park(1, 800)
    bench.clock.advance(1_000)
    folder = bench.store.log.folder
    base = bench.store.log.segments[-1].base_offset + (64 << 10)
    blocked = os.path.join(folder, f"{base:020d}")
    try:
        os.mkdir(blocked)
    except FileExistsError:  # the next segment was created ahead
        blocked = os.path.join(folder, f"{base + (64 << 10):020d}")
        os.mkdir(blocked)
    assert rounds(bench) == 10.0
    assert "waits for the disk" in caplog.text
    early = bench.delivered()
    assert 0 < len(early) < 800
    os.rmdir(blocked)
    rounds(bench)
    assert bench.delivered() == list(range(800))


@pytest.mark.parametrize("damaged", [0, 3, 9])
async def test_a_delayed_message_after_a_damaged_entry_is_not_lost(bench, damaged):
    bench.park(1, 10)
    queue = bench.store.queues.get(SCHEDULE, 0)
    with open(queue.files[0], "r+b") as file:
        file.seek(damaged * 20)
        file.write(b"\x01")  # the high byte of the physical offset: beyond the log
    bench.service.start()
    bench.clock.advance(1_000)
    while bench.service.deliver_due() is not None:
        await asyncio.sleep(0.001)
    assert bench.delivered() == list(range(10))


@pytest.mark.parametrize("leads_to", [2, 7])
async def test_an_entry_with_a_wrong_position_delivers_no_message_twice(bench, leads_to):
    bench.park(1, 10)
    queue = bench.store.queues.get(SCHEDULE, 0)
    with open(queue.files[0], "r+b") as file:
        file.seek(5 * 20)
        file.write(queue[leads_to][0].to_bytes(8, "big"))
    bench.service.start()
    bench.clock.advance(1_000)
    while bench.service.deliver_due() is not None:
        await asyncio.sleep(0.001)
    assert bench.delivered() == list(range(10))


async def test_a_delayed_message_without_its_record_delays_no_other(bench, caplog):
    bench.park(1, 10)
    with open(bench.store.log.segments[0].path, "r+b") as file:
        file.seek(bench.store.queues.get(SCHEDULE, 0)[4][0] + 4)
        file.write(bytes(4))
    bench.service.start()
    bench.clock.advance(1_000)
    while bench.service.deliver_due() is not None:
        await asyncio.sleep(0.001)
    assert bench.delivered() == [number for number in range(10) if number != 4]


async def test_a_message_that_its_topic_cannot_hold_is_set_aside_with_a_line(bench, caplog):
    bench.store.put(
        Record(
            topic=SCHEDULE,
            body=b"lost?",
            properties={"DELAY": "1", "REAL_TOPIC": "%RETRY%" + "g" * 121, "REAL_QID": "0"},
        )
    )
    bench.park(1)
    bench.service.start()
    bench.clock.advance(1_000)
    bench.service.deliver_due()
    assert bench.delivered() == [0]
    assert bench.set_aside == 1
    queue = bench.store.queues.get("rmq_sys_undeliverable_messages", 0)
    assert decode_record(bench.store.read(queue[0][0])).body == b"lost?"
    assert "rmq_sys_undeliverable_messages has them" in caplog.text
    assert bench.service.offset_table[1] == 2
