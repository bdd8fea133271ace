"""kill -9 while messages wait for their time: none is lost, early, or delivered twice."""

from __future__ import annotations

import random
import struct
import threading
import time
import uuid
from pathlib import Path

import pytest
from harness import servers
from harness.wire import PULL_MESSAGE, SEND_MESSAGE_V2, Wire, pull_fields, send_fields

QUEUES = 2
LEVEL_TABLE = "1s 2s"
LONGEST_MS = 2_500
ROUNDS_SHARE = 25  # a round takes as long as so many of the other kill test
IN_FLIGHT = 8
STORE_TIME = slice(56, 64)  # of a record with IPv4 hosts


class Sent:
    """Acknowledged messages: number -> the earliest time at which each may be delivered, in ms."""

    def __init__(self) -> None:
        self.due: dict[int, int] = {}
        self._next = 0
        self._lock = threading.Lock()

    def number(self) -> int:
        with self._lock:
            self._next += 1
            return self._next


def send_others_until_killed(address: str, topic: str) -> None:
    """Other sends meanwhile: they are the log's tail, which with the pool is not on disk."""
    try:
        with Wire(address) as wire:
            while True:
                for _ in range(IN_FLIGHT):
                    wire.send(SEND_MESSAGE_V2, send_fields(topic, 0, {}), bytes(2_000))
                for _ in range(IN_FLIGHT):
                    wire.receive()
    except OSError:
        return


def send_until_killed(address: str, topic: str, seed: int, sent: Sent) -> None:
    """Random delay levels and delivery times; SYNC_FLUSH, a few in flight."""
    chance = random.Random(seed)
    waiting: dict[int, tuple[int, int]] = {}
    try:
        with Wire(address) as wire:
            while True:
                while len(waiting) < IN_FLIGHT:
                    number, wait = sent.number(), chance.choice((1_000, 2_000))
                    properties = {"DELAY": str(wait // 1_000)}
                    now = time.time_ns() // 1_000_000
                    if chance.random() < 0.5:
                        wait = chance.randrange(50, LONGEST_MS)
                        properties = {"TIMER_DELIVER_MS": str(now + wait)}
                    fields = send_fields(topic, number % QUEUES, properties)
                    opaque = wire.send(SEND_MESSAGE_V2, fields, b"%d" % number)
                    waiting[opaque] = (number, now + wait)
                answer = wire.receive()
                number, due = waiting.pop(answer.opaque)
                if answer.code == 0:
                    sent.due[number] = due
    except OSError:
        return


def delivered(address: str, topic: str) -> list[tuple[int, int]]:
    """(number, store time in ms) of everything in the topic."""
    found = []
    with Wire(address) as wire:
        for queue_id in range(QUEUES):
            begin = 0
            while True:
                answer = wire.call(PULL_MESSAGE, pull_fields(topic, queue_id, begin, 32))
                if answer.code != 0:
                    break
                body, at = answer.body, 0
                while at < len(body):
                    size, length = (struct.unpack_from(">I", body, at + n)[0] for n in (0, 84))
                    record = body[at : at + size]
                    stored = int.from_bytes(record[STORE_TIME], "big")
                    found.append((int(record[88 : 88 + length]), stored))
                    at += size
                begin = int(answer.fields["nextBeginOffset"])
    return found


@pytest.mark.crash
@pytest.mark.parametrize(
    ("backend", "flush"),
    [
        ("mmap", "ASYNC_FLUSH"),
        ("pool", "SYNC_FLUSH"),
        ("pool", "ASYNC_FLUSH"),
        ("uring", "SYNC_FLUSH"),
        ("uring", "ASYNC_FLUSH"),
    ],
)
def test_after_kills_no_delayed_message_is_lost_early_or_delivered_twice(
    kind: str,
    namesrv: servers.Server,
    tmp_path: Path,
    kill_rounds: int,
    backend: str,
    flush: str,
) -> None:
    if kind == "java":
        pytest.skip("4.9.4 has no deliver times, and delivers messages from before a kill again")
    broker = servers.broker(
        *(kind, tmp_path, namesrv.address),
        broker_name=f"broker-killed-delays-{backend}-{flush}",
        settings={
            "flushDiskType": flush,
            "ioBackend": backend,
            "transientStorePoolLocked": "false",
            "messageDelayLevel": LEVEL_TABLE,
            "mappedFileSizeCommitLog": str(8 << 20),
            "mappedFileSizeConsumeQueue": str(20 * 500),
        },
    )
    topic, sent = f"killed-{uuid.uuid4().hex[:8]}", Sent()
    chance = random.Random(7)
    broker.start()
    rounds = max(kill_rounds // ROUNDS_SHARE, 2)
    for number in range(rounds):
        senders = [
            threading.Thread(target=send_until_killed, args=(broker.address, topic, seed, sent))
            for seed in (2 * number, 2 * number + 1)
        ]
        senders.append(
            threading.Thread(target=send_others_until_killed, args=(broker.address, topic + "-o"))
        )
        for sender in senders:
            sender.start()
        time.sleep(chance.uniform(0.3, 2.0))
        broker.kill()
        for sender in senders:
            sender.join(30)
        broker.start()
    time.sleep(LONGEST_MS / 1_000)
    deadline = time.monotonic() + 60
    wanted = sent.due.keys() if flush == "SYNC_FLUSH" or backend == "mmap" else set()
    found = delivered(broker.address, topic)
    while wanted - {n for n, _ in found} and time.monotonic() < deadline:
        time.sleep(0.2)
        found = delivered(broker.address, topic)
    lost = wanted - {n for n, _ in found}
    assert not lost, f"{len(lost)} of {len(sent.due)} were lost: {sorted(lost)[:10]}"
    early = [(n, sent.due[n] - at) for n, at in found if at < sent.due.get(n, 0)]
    assert not early, f"{len(early)} came too early, by ms: {early[:10]}"
    assert len(sent.due) > 50 * rounds
    twice = len(found) - len({n for n, _ in found})
    assert not twice, f"{twice} of {len(found)} came twice"
    assert broker.stop() in (0, 143), broker.tail()
