"""Delayed messages that are taken back: never delivered, across restarts and kills."""

import asyncio
from pathlib import Path
from unittest.mock import Mock

import pytest
from harness.stores.killed_store import copy_running

from congreve.base.clock import ManualClock
from congreve.broker.config import BrokerConfig
from congreve.broker.delay.parking import park
from congreve.broker.delay.processor import DelayedMessageProcessor
from congreve.broker.delay.recalls import KEEP_MS
from congreve.broker.delay.service import DelayedMessages
from congreve.broker.errors import RefusedError
from congreve.engine.config import StoreConfig
from congreve.engine.store import MessageStore
from congreve.records.message.message import Record
from congreve.records.message.recall_handle import RecallHandle
from congreve.records.record import decode_record
from congreve.remoting.loop.pieces import Pieces
from congreve.remoting.messages.admin_headers import DelayedMessagesRequestHeader

NOW = 1_700_000_000_000
HOUR = 3_600_000
HOST = ("10.0.0.1", 1)


class Bench:
    """A store with both services and the processor of recalls."""

    def __init__(self, root: Path, clock: ManualClock) -> None:
        self.clock = clock
        self.config = BrokerConfig(
            broker_name="b",
            store=StoreConfig(
                root_dir=str(root),
                flush_disk_type="ASYNC_FLUSH",
                message_delay_level="1s 5s 2h",
                mapped_file_size_commit_log=64 << 10,
                max_hash_slot_num=100,
                max_index_num=400,
            ),
        )

    async def open(self) -> None:
        self.store = MessageStore(self.config.store, clock=self.clock, on_arrival=self.arrived)
        self.store.start()
        self.delayed = DelayedMessages(self.store, self.clock)
        self.delayed.load()
        await self.delayed.start()
        self.processor = DelayedMessageProcessor(
            config=self.config,
            store=self.store,
            delayed=self.delayed,
            group_commit=Mock(),
            pieces=Pieces(),
        )

    def arrived(self, queue) -> None:
        self.delayed.arrived(queue)

    async def close(self) -> None:
        await self.delayed.stop()
        self.store.close()

    async def after_kill(self, root: Path) -> "Bench":
        """Close this one; return the bench of a copy of its files as kill -9 would leave them."""
        copy_running(self.config.store.root_dir, root)
        await self.close()
        other = Bench(root, self.clock)
        await other.open()
        return other

    def send(self, number: int, **properties: str) -> None:
        record = Record(
            topic="T", body=b"%d" % number, properties=properties | {"UNIQ_KEY": f"M{number}"}
        )
        self.store.put(park(record, self.config.store, self.clock.now()))

    async def take_back(self, *numbers: int) -> None:
        for number in numbers:
            await self.processor.take_back("T", f"M{number}", HOST)

    def rounds(self) -> None:
        for service in (self.delayed.levels, self.delayed.timers):
            while service.deliver_due() == 0.0:
                pass

    def delivered(self) -> list[int]:
        self.rounds()
        entries = self.store.queues.get("T", 0).entries(0, 1 << 40)
        offsets = entries["physical_offset"].tolist()
        return [int(decode_record(self.store.read(at)).body) for at in offsets]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "store", ManualClock(NOW))


def park_ten(bench: Bench) -> None:
    """Even numbers with a level of 5 s, odd ones with a delivery time 5 s from now."""
    for number in range(10):
        properties = {"TIMER_DELAY_MS": "5000"} if number % 2 else {"DELAY": "2"}
        bench.send(number, **properties)


async def test_a_recalled_message_is_not_delivered(bench):
    await bench.open()
    park_ten(bench)
    bench.rounds()
    await bench.take_back(0, 3, 4, 9)
    bench.clock.advance(5_000)
    assert sorted(bench.delivered()) == [1, 2, 5, 6, 7, 8]
    await bench.close()


@pytest.mark.parametrize("number", [0, 1])
async def test_a_message_is_recalled_once_and_only_in_time(bench, number):
    await bench.open()
    park_ten(bench)
    await bench.take_back(number)
    with pytest.raises(RefusedError, match=f"no delayed message M{number}"):
        await bench.take_back(number)
    with pytest.raises(RefusedError, match="no delayed message M77"):
        await bench.take_back(77)
    bench.clock.advance(5_000)
    bench.rounds()
    with pytest.raises(RefusedError, match=f"no delayed message M{number + 2}") as refused:
        await bench.take_back(number + 2)
    assert refused.value.code == 604
    await bench.close()


async def test_recalls_survive_a_restart(bench):
    await bench.open()
    park_ten(bench)
    await bench.take_back(0, 1, 2)
    await bench.close()
    await bench.open()
    await bench.take_back(5)
    await bench.close()
    await bench.open()
    bench.clock.advance(5_000)
    assert sorted(bench.delivered()) == [3, 4, 6, 7, 8, 9]
    await bench.close()
    await bench.open()
    assert sorted(bench.delivered()) == [3, 4, 6, 7, 8, 9]
    await bench.close()


@pytest.mark.parametrize("is_saved", [False, True])
async def test_recalls_survive_a_kill_before_and_after_the_delivery(bench, tmp_path, is_saved):
    await bench.open()
    park_ten(bench)
    bench.delayed.save()
    await bench.take_back(0, 1, 4, 5)
    if is_saved:
        bench.delayed.save()
        for file in bench.delayed.files:
            await file.saved()
    bench = await bench.after_kill(tmp_path / "first")
    bench.clock.advance(5_000)
    expected = [2, 3, 6, 7, 8, 9]
    assert sorted(bench.delivered()) == expected
    # The files do not say yet what was delivered: the log does.
    bench = await bench.after_kill(tmp_path / "second")
    assert sorted(bench.delivered()) == expected
    await bench.close()


async def test_recalls_of_past_times_are_removed(bench):
    await bench.open()
    park_ten(bench)
    await bench.take_back(0, 1)
    assert len(bench.delayed.recalls) == 2
    bench.clock.advance(5_000 + KEEP_MS + 1)
    bench.delayed.save()
    assert len(bench.delayed.recalls) == 2  # they were not passed yet
    bench.rounds()
    bench.delayed.save()
    assert len(bench.delayed.recalls) == 0
    await bench.close()


async def counts(bench: Bench) -> dict[tuple[int, int], int]:
    body = await Pieces().run(bench.processor._counts(DelayedMessagesRequestHeader()))
    assert body.is_complete
    return {((row.hour_ms - NOW) // HOUR, row.level): row.count for row in body.counts}


async def test_pending_messages_are_counted_and_listed(bench):
    await bench.open()
    hour = NOW % HOUR  # a due time in hour n from now is n hours less this
    park_ten(bench)
    bench.send(10, DELAY="3")
    bench.send(11, TIMER_DELAY_MS=str(50 * HOUR))  # beyond the time after which it is rewritten
    await bench.take_back(0, 1)
    first = (5_000 + hour) // HOUR - (hour > 0)
    assert await counts(bench) == {
        (first, 0): 4,
        (first, 2): 4,
        ((2 * HOUR + hour) // HOUR - (hour > 0), 3): 1,
        ((50 * HOUR + hour) // HOUR - (hour > 0), 0): 1,
    }
    header = DelayedMessagesRequestHeader(begin_ms=NOW + 5_001)
    body = await Pieces().run(bench.processor._next(header))
    assert [(one.msg_id, one.due_ms - NOW, one.level) for one in body.messages] == [
        ("M10", 2 * HOUR, 3),
        ("M11", 50 * HOUR, 0),
    ]
    assert body.is_complete
    handle = RecallHandle.decode(body.messages[0].recall_handle)
    assert handle == ("T", "b", str(NOW + 2 * HOUR), "M10")
    header = DelayedMessagesRequestHeader(count=3, topic="T")
    body = await Pieces().run(bench.processor._next(header))
    assert (len(body.messages), body.is_complete) == (3, False)
    header = DelayedMessagesRequestHeader(topic="other")
    assert not (await Pieces().run(bench.processor._next(header))).messages
    bench.clock.advance(5_000)
    bench.rounds()
    assert sum((await counts(bench)).values()) == 2
    await bench.close()


async def test_many_recalls_at_the_same_time(bench):
    await bench.open()
    park_ten(bench)
    await asyncio.gather(*(bench.take_back(number) for number in range(10)))
    bench.clock.advance(5_000)
    assert bench.delivered() == []
    await bench.close()
