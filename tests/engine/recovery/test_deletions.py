"""A topic that another broker has deleted since this one's checkpoint, as RocketMQ does."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.stores.small_store import small_store

from congreve.engine.store import MessageStore
from congreve.records.message.message import Record
from congreve.records.record import decode_record

OLD = 45


def put(store: MessageStore, topic: str, *bodies: bytes, queue_id: int = 0) -> None:
    for body in bodies:
        store.put(Record(topic=topic, body=body, queue_id=queue_id))


def served(store: MessageStore, topic: str, queue_id: int = 0) -> list[bytes]:
    queue = store.queues.find(topic, queue_id)
    places = [] if queue is None else [queue[offset][0] for offset in range(queue.min, queue.max)]
    return [decode_record(record).body for place in places if (record := store.read(place))]


def write_topics(root: Path, *names: str) -> None:
    file = root / "config/topics.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"topicConfigTable": {name: {} for name in names}}))


def by_another_broker(root: Path, change: Callable[[MessageStore], None], *topics: str) -> None:
    """Change a store as a program does that leaves our files and marks as they are."""
    own = shutil.copytree(root / "congreve", root.parent / "own")
    with MessageStore(small_store(root)) as store:
        change(store)
    shutil.rmtree(root / "congreve")
    shutil.move(own, root / "congreve")
    write_topics(root, *topics)
    os.utime(root / "config/topics.json", (2e9, 2e9))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with two topics, closed by us."""
    root = tmp_path / "store"
    with MessageStore(small_store(root)) as store:
        for number in range(OLD):
            put(store, "T", b"old %d" % number)
            put(store, "Kept", b"kept %d" % number)
    write_topics(root, "T", "Kept")
    return root


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("count", [1, 20, OLD, 200])
def test_a_topic_that_was_made_again_has_its_new_messages(
    root: Path, count: int, killed: bool
) -> None:
    new = [b"new %d" % number for number in range(count)]

    def change(store: MessageStore) -> None:
        store.delete_topic("T")
        put(store, "T", *new)

    by_another_broker(root, change, "T", "Kept")
    if killed:
        (root / "abort").touch()
    with MessageStore(small_store(root)) as store:
        assert served(store, "T") == new
        assert len(served(store, "Kept")) == OLD
        put(store, "T", b"later")
        assert served(store, "T") == [*new, b"later"]


@pytest.mark.parametrize("made_again", [False, True])
def test_a_deleted_topic_does_not_come_back(root: Path, made_again: bool) -> None:
    topics = ("T", "Kept") if made_again else ("Kept",)
    by_another_broker(root, lambda store: store.delete_topic("T") and None, *topics)
    (root / "consumequeue/T").mkdir()  # RocketMQ leaves it
    with MessageStore(small_store(root)) as store:
        assert not served(store, "T")
        put(store, "T", b"new")
        assert served(store, "T") == [b"new"]
        assert store.queues.get("T", 0).max == 1


@pytest.mark.parametrize("checkpoint", [True, False])
@pytest.mark.parametrize("made_again", [False, True])
def test_messages_since_our_checkpoint_do_not_come_back(
    root: Path, made_again: bool, checkpoint: bool
) -> None:
    def change(store: MessageStore) -> None:
        put(store, "T", b"old", b"old")
        put(store, "T", b"old", queue_id=1)
        store.delete_topic("T")
        if made_again:
            put(store, "T", b"new", queue_id=1)
        put(store, "Kept", b"kept")

    by_another_broker(root, change, "Kept", *(["T"] if made_again else []))
    if not checkpoint:
        (root / "congreve/queues.json").unlink()
    for _ in range(2):
        with MessageStore(small_store(root)) as store:
            assert not served(store, "T", 0)
            assert served(store, "T", 1) == ([b"new"] if made_again else [])
            assert len(served(store, "Kept")) == OLD + 1
            copy = shutil.copytree(root, root.parent / "killed", dirs_exist_ok=True)
        shutil.rmtree(root)
        copy.rename(root)


def test_another_queue_of_a_topic_made_again_has_no_former_message(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with MessageStore(small_store(root)) as store:
        for queue_id in range(4):
            put(store, "T", b"old", queue_id=queue_id)

    def change(store: MessageStore) -> None:
        store.delete_topic("T")
        put(store, "T", b"new", queue_id=2)

    by_another_broker(root, change, "T")
    with MessageStore(small_store(root)) as store:
        assert [served(store, "T", queue_id) for queue_id in range(4)] == [[], [], [b"new"], []]


def test_messages_that_no_queue_has_yet_are_added(root: Path) -> None:
    """RocketMQ may stop before it has added its last messages to their queues."""

    def change(store: MessageStore) -> None:
        put(store, "Late", b"first")

    by_another_broker(root, change, "T", "Kept", "Late")
    shutil.rmtree(root / "consumequeue/Late")
    with MessageStore(small_store(root)) as store:
        assert served(store, "Late") == [b"first"]


def test_queues_that_the_disk_lost_are_rebuilt(root: Path) -> None:
    (root / "abort").touch()
    os.utime(root / "config/topics.json", (2e9, 2e9))
    shutil.rmtree(root / "consumequeue/T")
    with MessageStore(small_store(root)) as store:
        assert served(store, "T") == [b"old %d" % number for number in range(OLD)]
