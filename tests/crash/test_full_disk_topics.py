"""The disk fills at each step of a topic's creation and deletion, and has space again later."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from harness.stores.small_store import small_store
from harness.wire import SEND_MESSAGE_V2, Wire, send_fields

from congreve.broker.broker import Broker
from congreve.broker.config import BrokerConfig
from congreve.io_backends.errors import BackendError
from congreve.io_backends.files.file_system import DISK
from congreve.io_backends.files.intercepted import InterceptedFileSystem
from congreve.records.record import decode_record

CREATE_TOPIC, DELETE_TOPIC = 17, 215
NEEDS_ROOM = {"create", "write", "truncate", "create_map", "reserve", "link", "make_folder"}
MAPPINGS = {"create_map", "reserve"}
SHORT = 100
T = TypeVar("T")
Count = Callable[[str, int], None]


class FullDisk(InterceptedFileSystem):
    """After fill_at(n), the n-th call that needs space and all later ones fail until free()."""

    def __init__(self) -> None:
        super().__init__(DISK)
        self._left = -1
        self.refused = 0

    def fill_at(self, nth: int) -> None:
        """Let n - 1 more calls succeed."""
        self._left = nth - 1

    def free(self) -> None:
        """Let all calls succeed again."""
        self._left = -1

    def around(self, call: str, path: str, size: int, make: Callable[[], T]) -> T:
        if call not in NEEDS_ROOM or self._left < 0:
            return make()
        if self._left > 0:
            self._left -= 1
            return make()
        self.refused += 1
        text = f"cannot {call} {path}: no space"
        if call in MAPPINGS:
            raise BackendError(text, errno.ENOSPC)
        raise OSError(errno.ENOSPC, text, path)


def config_of(root: Path) -> BrokerConfig:
    store = small_store(
        root,
        mapped_file_size_commit_log=4 << 20,
        mapped_file_size_consume_queue=20 * 100,
        flush_disk_type="SYNC_FLUSH",
        io_backend="mmap",
    )
    return BrokerConfig(
        broker_ip1="127.0.0.1", bind_address="127.0.0.1", listen_port=0, store=store
    )


class Topics:
    """Creates, fills and deletes topics of one broker, and records what was acknowledged."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.acknowledged: dict[str, list[bytes]] = {}

    def create(self, topic: str) -> bool:
        fields = {
            **{"topic": topic, "defaultTopic": "TBW102", "perm": "6", "order": "false"},
            **{"readQueueNums": "2", "writeQueueNums": "2", "topicFilterType": "SINGLE_TAG"},
        }
        return self._wire.call(CREATE_TOPIC, fields).code == 0

    def send(self, topic: str, body: bytes) -> bool:
        done = self._wire.call(SEND_MESSAGE_V2, send_fields(topic, 0, {}), body).code == 0
        if done:
            self.acknowledged.setdefault(topic, []).append(body)
        return done

    def delete(self, topic: str) -> bool:
        # A deletion that failed half-way may have removed the messages already.
        self.acknowledged.pop(topic, None)
        return self._wire.call(DELETE_TOPIC, {"topic": topic}).code == 0


def stored(broker: Broker, topic: str) -> list[bytes]:
    queue = broker.store.queues.find(topic, 0)
    records = [] if queue is None else [queue[offset][0] for offset in range(queue.min, queue.max)]
    views = [broker.store.read(place) for place in records]
    return [decode_record(view).body for view in views if view is not None]


def check(broker: Broker, topics: Topics) -> None:
    for topic, bodies in topics.acknowledged.items():
        found = stored(broker, topic)
        assert [body for body in found if body in bodies] == bodies, topic


def fill_at(nth: int, root: Path) -> bool:
    """Whether the disk was full before all steps were done."""
    disk = FullDisk()
    with Broker(config_of(root), files=disk) as broker, Wire(broker.address) as wire:
        topics = Topics(wire)
        assert topics.create("old")
        assert topics.send("old", b"before")
        assert topics.create("kept")
        assert topics.send("kept", b"kept")
        disk.fill_at(nth)
        topics.create("new")
        topics.send("new", b"first")
        topics.send("made-by-a-send", b"first")
        topics.delete("old")
        topics.send("kept", b"while the disk is full")
        check(broker, topics)
        disk.free()
        check(broker, topics)
        # All requests that were refused before succeed now.
        assert topics.create("new")
        assert topics.send("new", b"second")
        assert topics.send("made-by-a-send", b"second")
        assert topics.delete("old")
        assert topics.send("kept", b"room again")
        check(broker, topics)
    with Broker(config_of(root)) as broker:
        names = set(broker.managers.metadata.topics.table)
        assert {"new", "made-by-a-send", "kept"} <= names
        assert "old" not in names
        assert not stored(broker, "old")
        check(broker, topics)
    return disk.refused > 0


@pytest.mark.crash
def test_a_disk_that_fills_while_topics_change_breaks_no_promise(
    tmp_path: Path, kill_rounds: int, campaign: Count
) -> None:
    step = 5 if kill_rounds <= SHORT else 1
    nth = 1
    while fill_at(nth, tmp_path / str(nth)):
        nth += step
        assert nth < 1000
    campaign("R13 disk full while topics are created and deleted", nth // step)
