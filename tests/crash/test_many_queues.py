"""Brokers with many queues: a clean stop, and kills while idle queues are unmapped."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
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

CREATE_TOPIC = 17
TOPIC_QUEUES = 500
MAPPED = 64
PROBED = 200

SETTINGS = {
    "flushDiskType": "ASYNC_FLUSH",
    "ioBackend": "mmap",
    "mappedFileSizeCommitLog": str(4 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 200),
}


@pytest.fixture
def namesrv(tmp_path: Path) -> Iterator[servers.Server]:
    server = servers.namesrv("congreve", tmp_path / "namesrv")
    server.start()
    yield server
    server.kill()


Queue = tuple[str, int]


def make_queues(address: str, count: int) -> list[Queue]:
    """Topics of TOPIC_QUEUES queues each."""
    topics = [f"T{number}" for number in range(count // TOPIC_QUEUES)]
    with Wire(address) as wire:
        for topic in topics:
            fields = {"topic": topic, "defaultTopic": "TBW102", "perm": "6", "order": "false"}
            fields |= {"readQueueNums": str(TOPIC_QUEUES), "writeQueueNums": str(TOPIC_QUEUES)}
            assert wire.call(CREATE_TOPIC, fields | {"topicFilterType": "SINGLE_TAG"}).code == 0
    return [(topic, queue) for topic in topics for queue in range(TOPIC_QUEUES)]


def send(wire: Wire, queues: list[Queue], body: bytes) -> dict[Queue, int]:
    """One message for each queue; the queue offsets of those that were acknowledged."""
    asked = {
        wire.send(SEND_MESSAGE_V2, send_fields(topic, queue, {}), body): (topic, queue)
        for topic, queue in queues
    }
    offsets = {}
    for _ in queues:
        answer = wire.receive()
        if answer.code == 0:
            offsets[asked[answer.opaque]] = int(answer.fields["queueOffset"])
    return offsets


def bodies_at(wire: Wire, queue: Queue, offset: int) -> list[bytes]:
    answer = wire.call(PULL_MESSAGE, pull_fields(*queue, offset, 1))
    return [body for _, body in record_bodies(answer.body)] if answer.code == 0 else []


def writable_mappings(broker: servers.BrokerServer) -> int:
    assert broker.process is not None
    maps = Path(f"/proc/{broker.process.pid}/maps").read_text().splitlines()
    return sum("/consumequeue/" in line and line.split()[1].startswith("rw") for line in maps)


@pytest.mark.crash
def test_a_broker_with_many_queues_stops_cleanly(
    tmp_path: Path, namesrv: servers.Server, kill_rounds: int
) -> None:
    count = 4_000 if kill_rounds <= 50 else 20_000
    broker = servers.broker("congreve", tmp_path / "broker", namesrv.address, settings=SETTINGS)
    broker.start()
    try:
        queues = make_queues(broker.address, count)
        with Wire(broker.address) as wire:
            for at in range(0, count, TOPIC_QUEUES):
                assert len(send(wire, queues[at : at + TOPIC_QUEUES], b"one")) == TOPIC_QUEUES
        assert broker.stop() == 0
        broker.start()
        with Wire(broker.address) as wire:
            for queue in random.sample(queues, PROBED):
                assert bodies_at(wire, queue, 0) == [b"one"]
        assert broker.stop() == 0
    finally:
        broker.kill()


class Traffic:
    """Send to all queues, and pull acknowledged messages, until the broker is killed."""

    def __init__(self, address: str, queues: list[Queue]) -> None:
        self.acknowledged: dict[tuple[Queue, int], bytes] = {}
        self.wrong: list[object] = []
        self._address = address
        self._queues = queues
        self._threads = [threading.Thread(target=work) for work in (self._send, self._pull)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    @property
    def is_running(self) -> bool:
        return all(thread.is_alive() for thread in self._threads)

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    def _send(self) -> None:
        with suppress(OSError, EOFError), Wire(self._address) as wire:
            number = 0
            while True:
                at = number * MAPPED % len(self._queues)
                body = b"%d" % number
                for queue, offset in send(wire, self._queues[at : at + MAPPED], body).items():
                    self.acknowledged[queue, offset] = body
                number += 1

    def _pull(self) -> None:
        with suppress(OSError, EOFError), Wire(self._address) as wire:
            while True:
                known = list(self.acknowledged.copy().items())  # the other thread adds to it
                for (queue, offset), body in random.sample(known, min(20, len(known))):
                    if bodies_at(wire, queue, offset) != [body]:
                        self.wrong.append((queue, offset))


@pytest.mark.crash
def test_a_kill_while_queues_release_their_mappings_loses_no_acknowledged_message(
    tmp_path: Path,
    namesrv: servers.Server,
    kill_rounds: int,
    campaign: Callable[[str, int], None],
) -> None:
    settings = SETTINGS | {"maxMappedQueues": str(MAPPED)}
    broker = servers.broker("congreve", tmp_path / "broker", namesrv.address, settings=settings)
    broker.start()
    acknowledged: dict[tuple[Queue, int], bytes] = {}
    try:
        queues = make_queues(broker.address, TOPIC_QUEUES)
        for number in range(max(2, kill_rounds // 25)):
            traffic = Traffic(broker.address, queues)
            traffic.start()
            wanted = random.Random(number).randrange(2, 4) * TOPIC_QUEUES
            while len(traffic.acknowledged) < wanted and traffic.is_running:
                time.sleep(0.01)
            assert 0 < writable_mappings(broker) <= MAPPED + MAPPED // 4
            broker.kill()
            traffic.join()
            acknowledged |= traffic.acknowledged
            assert not traffic.wrong
            broker.start()
            with Wire(broker.address) as wire:
                for (queue, offset), body in acknowledged.items():
                    assert bodies_at(wire, queue, offset) == [body]
        campaign("kill -9 while queues give their mappings back", len(acknowledged))
        assert broker.stop() == 0
    finally:
        broker.kill()
