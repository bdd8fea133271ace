"""Lanes beside the event loop: order, waits, and independence from a blocked loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, cycle
from pathlib import Path

import pytest
from broker.serving.test_fastpath import CREATE, SHORT, config_of
from harness.wire import SEND_MESSAGE_V2, Wire, record_bodies

from congreve.broker.broker import Broker
from congreve.broker.config import BrokerConfig
from congreve.io_backends.backend import Backend
from congreve.records.record import decode_record

LANES, SENDERS, QUEUES = 4, 8, 2
DELAYED_EACH = 20  # one in so many of a sender's messages is sent again, delayed
DELETE_TOPIC = 215
LONG_POLL = {
    "consumerGroup": "F",
    "maxMsgNums": "32",
    "sysFlag": "6",
    "commitOffset": "0",
    "suspendTimeoutMillis": "15000",
    "subscription": "*",
    "subVersion": "0",
}


@contextmanager
def running(
    config: BrokerConfig, backend: Backend | None = None
) -> Iterator[tuple[Broker, asyncio.AbstractEventLoop]]:
    """A broker on a loop and thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    broker = Broker(config, backend=backend)
    try:
        asyncio.run_coroutine_threadsafe(broker.start(), loop).result(60)
        yield broker, loop
    finally:
        asyncio.run_coroutine_threadsafe(broker.stop(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def create(broker: Broker, topic: str) -> None:
    with Wire(broker.address) as wire:
        assert wire.call(17, CREATE | {"topic": topic}).code == 0


def send(wire: Wire, topic: str, queue: int, body: bytes, properties: str = "WAIT\x01true") -> int:
    """Send one message; returns its queue offset. Python handles `properties` that repeat a
    name."""
    fields = SHORT | {"b": topic, "e": str(queue), "i": properties}
    answer = wire.call(SEND_MESSAGE_V2, fields, body)
    assert answer.code == 0, answer
    return int(answer.fields["queueOffset"])


class Work:
    """Threads that send, pull and create topics at the same time, and their errors."""

    def __init__(self, broker: Broker, messages: int) -> None:
        """`messages` is the number of messages of each sender."""
        self.broker = broker
        self.messages = messages
        self.delayed = SENDERS * messages // DELAYED_EACH
        self.answered: dict[tuple[int, int], list[int]] = defaultdict(list)
        self.followed: dict[tuple[str, int], list[bytes]] = defaultdict(list)
        self.errors: list[BaseException] = []
        self.stop = threading.Event()

    def send_all(self, sender: int) -> None:
        with Wire(self.broker.address) as wire:
            for number in range(self.messages):
                # Python handles each seventh message, which has a property twice.
                odd = "A\x011\x02A\x012\x02WAIT\x01true"
                properties = odd if number % 7 == 0 else "WAIT\x01true"
                queue = (sender + number) % QUEUES
                body = b"%d %d" % (sender, number)
                self.answered[sender, queue].append(send(wire, "T", queue, body, properties))
                if number % DELAYED_EACH == 0:
                    send(wire, "D", 0, body, "TIMER_DELAY_MS\x01200\x02WAIT\x01true")

    def follow(self, topic: str, queue: int, count: int) -> None:
        """Receive `count` messages of a queue by long polling."""
        bodies = self.followed[topic, queue]
        fields = LONG_POLL | {"topic": topic, "queueId": str(queue)}
        with Wire(self.broker.address) as wire:
            while len(bodies) < count:
                answer = wire.call(11, fields | {"queueOffset": str(len(bodies))})
                assert answer.code in (0, 19), answer
                for offset, body in record_bodies(answer.body) if answer.code == 0 else ():
                    assert offset == len(bodies), "no gap, no double"
                    bodies.append(body)

    def make_and_delete(self) -> None:
        number = 0
        with Wire(self.broker.address) as wire:
            while not self.stop.is_set():
                number += 1
                create(self.broker, f"made-{number}")
                send(wire, f"made-{number}", 0, b"x")
                assert wire.call(DELETE_TOPIC, {"topic": f"made-{number}"}).code == 0

    def thread(self, target: Callable[..., None], *args: object) -> threading.Thread:
        def run() -> None:
            try:
                target(*args)
            except (AssertionError, OSError) as error:
                self.errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def do(self) -> None:
        topics = self.thread(self.make_and_delete)
        threads = [self.thread(self.send_all, number) for number in range(SENDERS)]
        for queue in range(QUEUES):
            count = SENDERS * self.messages // QUEUES
            threads.append(self.thread(self.follow, "T", queue, count))
        threads.append(self.thread(self.follow, "D", 0, self.delayed))
        for thread in threads:
            thread.join()
        self.stop.set()
        topics.join()
        assert not self.errors, self.errors


@pytest.mark.parametrize(
    ("flush", "io_backend"),
    [
        ("ASYNC_FLUSH", "mmap"),
        ("SYNC_FLUSH", "mmap"),
        ("SYNC_FLUSH", "pool"),
        ("SYNC_FLUSH", "uring"),
    ],
)
def test_four_lanes_and_the_loop_append_without_gaps_or_duplicates(
    flush: str, io_backend: str, tmp_path: Path, quick: bool
) -> None:
    config = config_of(tmp_path, flush, LANES)
    config.store.io_backend = io_backend
    config.store.transient_store_pool_locked = False
    with running(config) as (broker, _):
        create(broker, "T")
        create(broker, "D")
        work = Work(broker, 100 if quick else 400)
        sent = SENDERS * work.messages
        work.do()
        assert broker._paths is not None
        by_lane = [lane.path.sends.put_messages for lane in broker._paths.lanes]
        assert sum(by_lane) > sent * 6 // 7 - SENDERS
        found: Counter[bytes] = Counter()
        for queue_id in range(QUEUES):
            queue = broker.store.queues.get("T", queue_id)
            answered = [some for (_, q), some in work.answered.items() if q == queue_id]
            assert sorted(chain(*answered)) == list(range(queue.max))
            numbers: dict[int, int] = {}
            for offset in range(queue.max):
                view = broker.store.read(queue[offset][0])
                assert view is not None
                record = decode_record(view)
                assert (record.queue_id, record.queue_offset) == (queue_id, offset)
                assert record.body == work.followed["T", queue_id][offset]
                found[record.body] += 1
                sender, number = map(int, record.body.split())
                assert numbers.get(sender, -1) < number, "the order of one connection"
                numbers[sender] = number
        assert len(found) == sent
        assert set(found.values()) == {1}
        delayed = broker.store.queues.get("D", 0)
        assert len(set(work.followed["D", 0])) == work.delayed == delayed.max


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_blocked_event_loop_delays_no_send(flush: str, tmp_path: Path) -> None:
    with running(config_of(tmp_path, flush, 1)) as (broker, loop):
        create(broker, "T")
        with Wire(broker.address) as wire:
            send(wire, "T", 0, b"first")
            begun, ended = threading.Event(), threading.Event()

            def sleep() -> None:
                begun.set()
                ended.wait(30)

            loop.call_soon_threadsafe(sleep)
            assert begun.wait(30)
            for number in range(500):
                assert send(wire, "T", 0, b"x") == number + 1
            ended.set()


def test_pulls_find_messages_of_lanes_and_waiting_pulls_wake(tmp_path: Path) -> None:
    with running(config_of(tmp_path, lanes=2)) as (broker, _):
        create(broker, "T")
        with Wire(broker.address) as consumer, Wire(broker.address) as producer:
            fields = {
                "consumerGroup": "G",
                "topic": "T",
                "queueId": "0",
                "queueOffset": "0",
                "maxMsgNums": "32",
                "sysFlag": "6",
                "commitOffset": "0",
                "suspendTimeoutMillis": "20000",
                "subscription": "*",
                "subVersion": "0",
            }
            for offset in range(20):
                opaque = consumer.send(11, fields | {"queueOffset": str(offset)})
                if offset % 2:
                    time.sleep(0.01)  # the pull waits before the message comes
                assert send(producer, "T", 0, b"%d" % offset) == offset
                answer = consumer.receive()
                assert (answer.opaque, answer.code) == (opaque, 0)
                assert decode_record(answer.body).body == b"%d" % offset


def test_pulls_in_lanes_are_correct_while_topics_are_created_and_deleted(
    tmp_path: Path, quick: bool
) -> None:
    """A lane must not read a queue that the event loop has removed."""
    fields = {
        "consumerGroup": "G",
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "32",
        "sysFlag": "5",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
    }
    with running(config_of(tmp_path, lanes=3)) as (broker, _):
        errors: list[BaseException] = []
        done = threading.Event()

        def consume() -> None:
            try:
                with Wire(broker.address) as one, Wire(broker.address) as other:
                    for topic, wire in cycle((("T0", one), ("T1", other))):
                        if done.is_set():
                            break
                        asked = fields | {"topic": topic, "commitOffset": "1"}
                        answer = wire.call(11, asked)
                        bodies = [] if answer.code else list(record_bodies(answer.body))
                        for offset, (queue_offset, body) in enumerate(bodies):
                            assert queue_offset == offset
                            assert body.startswith(topic.encode())
                        generations = {body.split()[1] for _, body in bodies}
                        assert len(generations) <= 1, "messages of two topics"
            except (AssertionError, OSError) as error:
                errors.append(error)

        # Four connections for three lanes; more threads would only wait for the interpreter.
        consumers = [threading.Thread(target=consume) for _ in range(2)]
        for thread in consumers:
            thread.start()
        try:
            with Wire(broker.address) as wire:
                for generation in range(10 if quick else 60):
                    for topic in ("T0", "T1"):
                        create(broker, topic)
                        for number in range(10):
                            body = f"{topic} {generation} {number}".encode()
                            assert send(wire, topic, 0, body) == number
                        assert wire.call(DELETE_TOPIC, {"topic": topic}).code == 0
        finally:
            done.set()
            for thread in consumers:
                thread.join()
        assert not errors, errors
        assert broker._paths is not None
        assert sum(lane.pulls.answered for lane in broker._paths.lanes) > 0


def test_a_large_chunk_is_appended_in_pieces(tmp_path: Path) -> None:
    """Other threads may append between two pieces of the bytes that arrived meanwhile."""
    piece, sends, frame = 64 * 1024, 1600, 400
    with running(config_of(tmp_path)) as (broker, _):
        create(broker, "T")
        assert broker._paths is not None
        path = broker._paths.lanes[0].path
        fields = SHORT | {"b": "T", "e": "0", "i": "WAIT\x01true"}
        with Wire(broker.address) as wire:
            send(wire, "T", 0, b"first")
            before = path.sends.holds
            with broker.store.log.lock:
                for _ in range(sends):
                    wire.send(SEND_MESSAGE_V2, fields, b"x" * 200)
            for number in range(sends):
                assert wire.receive().fields["queueOffset"] == str(number + 1)
        assert path.sends.holds - before > sends * frame // piece


def test_connections_are_spread_over_the_lanes(tmp_path: Path) -> None:
    with running(config_of(tmp_path, lanes=2)) as (broker, _):
        create(broker, "T")
        assert broker._paths is not None
        wires = [Wire(broker.address) for _ in range(40)]
        for wire in wires:
            send(wire, "T", 0, b"x")
        assert all(lane.path.sends.put_messages for lane in broker._paths.lanes)
        for wire in wires:
            wire.close()
