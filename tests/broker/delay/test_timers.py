"""Messages with their own delivery time: delivered at it and once, across every restart."""

import asyncio
from pathlib import Path

import pytest

from congreve.base.clock import Clock, ManualClock
from congreve.broker.delay.levels import REPAIR_STEP_S
from congreve.broker.delay.parking import park
from congreve.broker.delay.timers import TimerMessageService
from congreve.engine.config import StoreConfig
from congreve.engine.store import MessageStore
from congreve.records.message.message import Record
from congreve.records.record import decode_record

NOW = 1_700_000_000_000
HOUR = 3_600_000


class Bench:
    """A store and the service on it."""

    def __init__(self, root: Path, clock: Clock) -> None:
        self.clock = clock
        self.config = StoreConfig(
            root_dir=str(root),
            flush_disk_type="ASYNC_FLUSH",
            mapped_file_size_commit_log=64 << 10,
            max_hash_slot_num=100,
            max_index_num=400,
        )
        self.number = 0

    async def open(self) -> None:
        self.store = MessageStore(self.config, clock=self.clock, on_arrival=self.arrived)
        self.store.start()
        self.service = TimerMessageService(self.store, self.clock)
        await self.service.start()

    def arrived(self, queue) -> None:
        if queue.topic == "rmq_sys_wheel_timer":
            self.service.arrived(queue)

    async def close(self) -> None:
        await self.service.stop()
        self.store.close()

    def send(self, *delays_ms: int) -> None:
        for delay in delays_ms:
            record = Record(
                topic="T",
                body=b"%d" % self.number,
                properties={"TIMER_DELAY_MS": str(delay), "TAGS": "a"},
            )
            self.store.put(park(record, self.config, self.clock.now()))
            self.number += 1

    def records(self) -> list[Record]:
        entries = self.store.queues.get("T", 0).entries(0, 1 << 40)
        offsets = entries["physical_offset"].tolist()
        return [decode_record(self.store.read(at)) for at in offsets]

    def delivered(self) -> list[int]:
        return [int(record.body) for record in self.records()]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, ManualClock(NOW))


def rounds(bench: Bench) -> float | None:
    wait = 0.0
    while wait == 0.0:
        wait = bench.service.deliver_due()
    return wait


async def test_timed_messages_are_delivered_in_order_and_not_early(bench):
    await bench.open()
    bench.send(300, 100, 200, 0)
    assert rounds(bench) == 0.1
    assert bench.delivered() == [3]
    bench.clock.advance(99)
    assert rounds(bench) == 0.001
    bench.clock.advance(1)
    assert rounds(bench) == 0.1
    bench.clock.advance(200)
    assert rounds(bench) is None
    assert bench.delivered() == [3, 1, 2, 0]
    assert bench.records()[1].properties == {"TAGS": "a", "TIMER_OUT_MS": str(NOW + 100)}
    await bench.close()


async def test_a_restart_delivers_the_remaining_messages_once(bench):
    await bench.open()
    bench.send(*range(1, 101))
    bench.clock.advance(50)
    rounds(bench)
    await bench.close()
    await bench.open()
    rounds(bench)
    assert bench.delivered() == list(range(50))
    bench.clock.advance(50)
    rounds(bench)
    assert bench.delivered() == list(range(100))
    await bench.close()


async def test_a_message_for_a_far_time_survives_the_expiry_of_its_segment(bench):
    await bench.open()
    bench.send(100 * HOUR)
    for hours in (36, 72, 100):
        assert bench.delivered() == []
        bench.clock.set(NOW + hours * HOUR)
        bench.store.put(Record(topic="filler", body=bytes(60_000)))
        rounds(bench)
        # After half of fileReservedTime the message was written again, to the last segment.
        while len(bench.store.log.segments) > 1:
            bench.store.log.delete_oldest()
    (record,) = bench.records()
    assert record.body == b"0"
    assert record.properties == {"TAGS": "a", "TIMER_OUT_MS": str(NOW + 100 * HOUR)}
    await bench.close()


async def test_a_timed_message_is_not_rewritten_endlessly(bench):
    bench.config.file_reserved_time = 0
    await bench.open()
    bench.send(100 * HOUR)
    for _ in range(20):
        bench.clock.advance(1_000)
        bench.service.deliver_due()
    assert bench.store.queues.get("rmq_sys_wheel_timer", 0).max == 1
    await bench.close()


async def test_large_messages_are_delivered_a_few_at_a_time(bench):
    bench.config.mapped_file_size_commit_log = 1 << 20
    await bench.open()
    for number in range(30):
        properties = {"TIMER_DELAY_MS": "10"}
        record = Record(topic="T", body=b"%d " % number + bytes(300_000), properties=properties)
        bench.store.put(park(record, bench.config, bench.clock.now()))
    bench.clock.advance(10)
    bench.service.deliver_due()
    assert 0 < bench.store.queues.get("T", 0).max < 30
    rounds(bench)
    assert [int(record.body.split()[0]) for record in bench.records()] == list(range(30))
    await bench.close()


async def test_messages_wait_while_the_store_refuses_them(bench, caplog):
    await bench.open()
    bench.send(1)
    bench.clock.advance(1)
    bench.store.health.set_disk_full("the disk is full")
    assert bench.service.deliver_due() > 0
    assert bench.delivered() == [] and "the disk is full" in caplog.text
    bench.store.health.set_disk_full(None)
    rounds(bench)
    assert bench.delivered() == [0]
    await bench.close()


async def test_the_timer_starts_delivery(tmp_path):
    bench = Bench(tmp_path, Clock())
    await bench.open()
    bench.send(30)
    for _ in range(200):
        if bench.delivered():
            break
        await asyncio.sleep(0.005)
    (record,) = bench.records()
    assert record.store_timestamp >= record.born_timestamp
    await bench.close()


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(
    ("at", "value"),
    [(0, 1 << 56), (0, 0), (12, NOW + 1), (12, 1 << 62)],
    ids=["beyond the log", "a neighbour's", "early", "late"],
)
async def test_a_timed_message_after_a_damaged_entry_is_delivered_once_and_in_time(
    bench, at: int, value: int, restart: bool
):
    """The other due messages do not wait for its repair."""
    await bench.open()
    bench.send(100, *[10_000] * 9)
    with open(bench.store.queues.get("rmq_sys_wheel_timer", 0).files[0], "r+b") as file:
        file.seek(5 * 20 + at)
        file.write(value.to_bytes(8, "big"))
    if restart:
        index = Path(bench.config.own_dir, "timer.json")
        await bench.service.stop()
        index.unlink()
        await bench.service.start()
    bench.clock.advance(100)
    await repaired(bench)
    assert bench.delivered() == [0]
    bench.clock.advance(9_900)
    await repaired(bench)
    assert bench.delivered() == list(range(10))
    await bench.close()


async def repaired(bench: Bench) -> None:
    while bench.service.deliver_due() in (0.0, REPAIR_STEP_S):
        await asyncio.sleep(0.001)
