"""kill -9 under load: a SYNC_FLUSH broker has every acknowledged message after its restart."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections import deque
from pathlib import Path

import pytest
from harness import servers
from harness.wire import (
    PULL_MESSAGE,
    SEND_MESSAGE_V2,
    Wire,
    pull_fields,
    record_bodies,
    send_fields,
)

JAVA_ROUNDS = 2
SHORT = 100
SHORT_ROUNDS = 20  # tests/crash kills with every backend and policy, too
SENDERS = 3
IN_FLIGHT = 16
QUEUES = 4

# (queue id, queue offset) -> body
Acknowledged = dict[tuple[int, int], bytes]


def send_until_killed(address: str, topic: str, sender: int, acknowledged: Acknowledged) -> None:
    """Keep a window of sends open; note each one that was acknowledged."""
    chance = random.Random(sender)
    waiting: deque[tuple[int, bytes]] = deque()
    try:
        with Wire(address) as wire:
            while True:
                while len(waiting) < IN_FLIGHT:
                    text = uuid.uuid4().bytes + chance.randbytes(chance.randrange(3000))
                    fields = send_fields(topic, chance.randrange(QUEUES), {"KEYS": "k"})
                    waiting.append((wire.send(SEND_MESSAGE_V2, fields, text), text))
                answer = wire.receive()
                text = next(body for opaque, body in waiting if opaque == answer.opaque)
                waiting.remove((answer.opaque, text))
                # Flow control and timeouts are not acknowledgements.
                if answer.code == 0:
                    at = (int(answer.fields["queueId"]), int(answer.fields["queueOffset"]))
                    acknowledged[at] = text
    except OSError:
        return


def stored(address: str, topic: str, queue_id: int, begin: int) -> dict[int, bytes]:
    """The queue's bodies from `begin` on, by queue offset."""
    found: dict[int, bytes] = {}
    with Wire(address) as wire:
        while True:
            answer = wire.call(PULL_MESSAGE, pull_fields(topic, queue_id, begin, 32))
            if answer.code != 0:
                return found
            found.update(record_bodies(answer.body))
            begin = int(answer.fields["nextBeginOffset"])


def assert_all_there(address: str, topic: str, acknowledged: Acknowledged) -> None:
    for queue_id in range(QUEUES):
        mine = {offset: text for (queue, offset), text in acknowledged.items() if queue == queue_id}
        if not mine:
            continue
        found = stored(address, topic, queue_id, min(mine))
        lost = [offset for offset, text in mine.items() if found.get(offset) != text]
        assert not lost, f"queue {queue_id}: lost or changed {lost[:10]} of {len(mine)}"


@pytest.mark.crash
def test_a_kill_under_load_loses_no_acknowledged_message(
    kind: str, namesrv: servers.Server, tmp_path: Path, kill_rounds: int
) -> None:
    rounds = SHORT_ROUNDS if kill_rounds <= SHORT else kill_rounds
    if kind == "java":
        rounds = JAVA_ROUNDS
    broker = servers.broker(
        *(kind, tmp_path, namesrv.address),
        broker_name="broker-killed",
        settings={
            "flushDiskType": "SYNC_FLUSH",
            "mappedFileSizeCommitLog": str(1 << 20),
            "mappedFileSizeConsumeQueue": str(20 * 500),
        },
    )
    topic = f"killed-{uuid.uuid4().hex[:8]}"
    chance = random.Random(42)
    everything: Acknowledged = {}
    broker.start()
    for number in range(rounds):
        acknowledged: Acknowledged = {}
        senders = [
            threading.Thread(
                target=send_until_killed,
                args=(broker.address, topic, number * SENDERS + i, acknowledged),
            )
            for i in range(SENDERS)
        ]
        for sender in senders:
            sender.start()
        time.sleep(chance.uniform(0.05, 0.3))
        broker.kill()
        for sender in senders:
            sender.join(30)
        overwritten = everything.keys() & acknowledged.keys()
        assert not overwritten, f"round {number}: queue offsets given twice: {overwritten}"
        everything |= acknowledged
        broker.start()
        assert_all_there(broker.address, topic, acknowledged)
    assert len(everything) > rounds, "the rounds acknowledged next to nothing"
    assert_all_there(broker.address, topic, everything)
    assert broker.stop() in (0, 143), broker.tail()
