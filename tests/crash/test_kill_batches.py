"""kill -9 under batches: every acknowledged batch is stored, and no batch is stored in part."""

import random
import struct
import threading
import time
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import pytest
from harness import servers
from harness.wire import PULL_MESSAGE, Wire, pull_fields, record_bodies, send_fields

from congreve.io_backends.backends import refusal

SEND_BATCH_MESSAGE = 320
TOPIC = "KilledBatches"
QUEUES = 3
SENDERS = 2
IN_FLIGHT = 4
MEMBERS_MAX = 40

#: (queue id, offset of the first) -> bodies of all
Acknowledged = dict[tuple[int, int], list[bytes]]


def batch_of(bodies: list[bytes]) -> bytes:
    """Members without properties (RocketMQ: MessageDecoder.encodeMessages)."""
    return b"".join(
        struct.pack(">iiiii", 22 + len(body), 0, 0, 0, len(body)) + body + b"\0\0"
        for body in bodies
    )


def members(batch: str, chance: random.Random) -> list[bytes]:
    """Bodies that contain the number of their batch, their place in it and its length."""
    count = chance.randrange(1, MEMBERS_MAX)
    return [
        f"{batch}|{number}|{count}|".encode() + chance.randbytes(chance.randrange(900))
        for number in range(count)
    ]


def send_until_killed(address: str, seed: int, acknowledged: Acknowledged) -> None:
    chance = random.Random(seed)
    waiting: dict[int, list[bytes]] = {}  # opaque -> bodies
    sent = 0
    try:
        with Wire(address) as wire:
            while True:
                while len(waiting) < IN_FLIGHT:
                    bodies = members(f"{seed}-{sent}", chance)
                    sent += 1
                    fields = {**send_fields(TOPIC, chance.randrange(QUEUES), {}), "m": "true"}
                    waiting[wire.send(SEND_BATCH_MESSAGE, fields, batch_of(bodies))] = bodies
                answer = wire.receive()
                bodies = waiting.pop(answer.opaque)
                if answer.code == 0:
                    assert answer.fields["msgId"].count(",") == len(bodies) - 1
                    at = int(answer.fields["queueId"]), int(answer.fields["queueOffset"])
                    acknowledged[at] = bodies
    except OSError:
        return


def await_more(acknowledged: Acknowledged, than: int) -> None:
    """Return when more batches than these are acknowledged; a busy machine may take a while."""
    deadline = time.monotonic() + 60
    while len(acknowledged) <= than:
        assert time.monotonic() < deadline, f"{len(acknowledged)} batches were acknowledged"
        time.sleep(0.01)


def assert_none_in_part(bodies: list[bytes]) -> None:
    """Each batch of a queue is complete, with its members one after the other."""
    for batch, found in groupby((body.split(b"|", 3) for body in bodies), lambda parts: parts[0]):
        parts = list(found)
        count = int(parts[0][2])
        assert [int(one[1]) for one in parts] == list(range(count)), f"{batch!r} of {count}"


def stored(address: str, queue_id: int) -> list[bytes]:
    """A queue's bodies; their offsets have no gap."""
    bodies: list[bytes] = []
    with Wire(address) as wire:
        while True:
            answer = wire.call(PULL_MESSAGE, pull_fields(TOPIC, queue_id, len(bodies), 32))
            if answer.code != 0:
                return bodies
            found = record_bodies(answer.body)
            assert [at for at, _ in found] == list(range(len(bodies), len(bodies) + len(found)))
            bodies += [body for _, body in found]


@pytest.mark.crash
@pytest.mark.parametrize(
    ("backend", "lanes"), [("mmap", 0), ("mmap", 4), ("pool", 1), ("pool", 4), ("uring", 4)]
)
def test_every_acknowledged_batch_is_complete_and_no_batch_is_partial(
    tmp_path: Path,
    kill_rounds: int,
    backend: str,
    lanes: int,
    campaign: Callable[[str, int], None],
) -> None:
    if (reason := refusal(backend, str(tmp_path))) is not None:
        pytest.skip(reason)
    namesrv = servers.namesrv("congreve", tmp_path / "namesrv")
    broker = servers.broker(
        *("congreve", tmp_path / "broker", namesrv.address),
        settings={
            "flushDiskType": "SYNC_FLUSH",
            "ioBackend": backend,
            "networkThreads": str(lanes),
            "mappedFileSizeCommitLog": str(512 << 10),
            "mappedFileSizeConsumeQueue": str(20 * 100),
        },
    )
    acknowledged: Acknowledged = {}
    chance = random.Random(320)
    rounds = max(1, kill_rounds // 45)
    namesrv.start()
    try:
        for number in range(rounds):
            broker.start()
            senders = [
                threading.Thread(
                    target=send_until_killed,
                    args=(broker.address, number * SENDERS + i, acknowledged),
                )
                for i in range(SENDERS)
            ]
            before = len(acknowledged)
            for sender in senders:
                sender.start()
            await_more(acknowledged, than=before + 1)
            time.sleep(chance.uniform(0.05, 0.3))
            broker.kill()
            for sender in senders:
                sender.join(30)
        broker.start()
        found = [stored(broker.address, queue_id) for queue_id in range(QUEUES)]
        for bodies in found:
            assert_none_in_part(bodies)
        for (queue_id, offset), bodies in acknowledged.items():
            assert found[queue_id][offset : offset + len(bodies)] == bodies
        assert len(acknowledged) > rounds
        campaign(f"R1 kill -9 under batches, {backend}, networkThreads={lanes}", rounds)
        assert broker.stop() in (0, 143), broker.tail()
    finally:
        broker.kill()
        namesrv.kill()
