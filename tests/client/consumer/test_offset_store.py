"""Concurrent saves of offsets: the newer ones stay."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.fake_group import Group, member

from congreve.client import MessageModel
from congreve.client.consumer.offset_store import LocalOffsetStore, RemoteOffsetStore
from congreve.client.errors import OffsetFileError
from congreve.client.message import MessageQueue
from congreve.remoting.transport.local_address import local_address

QUEUE = MessageQueue("T", "broker-a", 0)


async def test_an_older_offset_never_overtakes_a_newer_one() -> None:
    """Brokers serve several requests of a connection at once, and the first may end last."""
    kept: dict[MessageQueue, int] = {}
    pauses_s = iter([0.05, 0.0])

    async def commit(queue: MessageQueue, offset: int) -> None:
        await asyncio.sleep(next(pauses_s))
        kept[queue] = offset

    async def committed(queue: MessageQueue) -> int | None:
        return kept.get(queue)

    store = RemoteOffsetStore(committed, commit)
    await asyncio.gather(store.write({QUEUE: 0}), store.write({QUEUE: 5}))
    assert await store.read(QUEUE) == 5


async def test_first_commits_of_a_topic_at_a_broker_are_alone() -> None:
    """RocketMQ 4.9.4's table of a new group: two first commits at once make it twice."""
    tables: dict[tuple[str, str], dict[int, int]] = {}

    async def commit(queue: MessageQueue, offset: int) -> None:
        key = queue.topic, queue.broker_name
        found = tables.get(key)
        await asyncio.sleep(0)
        table = tables[key] = {} if found is None else found
        table[queue.queue_id] = offset

    async def committed(queue: MessageQueue) -> int | None:
        return tables.get((queue.topic, queue.broker_name), {}).get(queue.queue_id)

    queues = [MessageQueue(topic, f"b{n}", i) for topic in "TU" for n in (1, 2) for i in range(3)]
    store = RemoteOffsetStore(committed, commit)
    await store.write({queue: queue.queue_id for queue in queues})
    assert [await store.read(queue) for queue in queues] == [queue.queue_id for queue in queues]


async def test_one_thread_at_a_time_writes_the_file(tmp_path: Path) -> None:
    store = LocalOffsetStore(tmp_path, "127.0.0.1@one", "group")
    await asyncio.gather(*(store.write({QUEUE: offset}) for offset in range(50)))
    assert await LocalOffsetStore(tmp_path, "127.0.0.1@one", "group").read(QUEUE) == 49


class KilledError(Exception):
    """The process would end here."""


def kill_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """The process ends at the next rename after so many."""
    left = iter(range(step))

    def or_killed(change: Callable[..., None]) -> Callable[..., None]:
        def changed(*args: Any, **kwargs: Any) -> None:
            if next(left, None) is None:
                raise KilledError
            change(*args, **kwargs)

        return changed

    for name in ("replace", "link", "unlink"):
        monkeypatch.setattr(os, name, or_killed(getattr(os, name)))


@pytest.mark.parametrize("damage", [None, b"", b"\0\0", b"{"])
@pytest.mark.parametrize("step", range(4))
async def test_a_kill_between_two_renames_leaves_offsets_that_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, damage: bytes | None
) -> None:
    """This also holds if a damaged file is beside a good .bak."""
    store = LocalOffsetStore(tmp_path, "127.0.0.1@one", "group")
    for offset in (1, 2):
        await store.write({QUEUE: offset})
    if damage is not None:
        store.path.write_bytes(damage)
    store = LocalOffsetStore(tmp_path, "127.0.0.1@one", "group")
    before = await store.read(QUEUE)
    assert before == (2 if damage is None else 1)
    with monkeypatch.context() as patched:
        kill_at(patched, step)
        try:
            await store.write({QUEUE: 3})
        except KilledError:
            pass
        else:
            before = 3
    assert await LocalOffsetStore(tmp_path, "127.0.0.1@one", "group").read(QUEUE) == before


@pytest.mark.parametrize("damage", [b"", b"\0\0", b"{"])
async def test_a_damaged_offsets_file_does_not_replace_a_good_backup(
    tmp_path: Path, damage: bytes
) -> None:
    store = LocalOffsetStore(tmp_path, "127.0.0.1@one", "group")
    for offset in (1, 2):
        await store.write({QUEUE: offset})
    store.path.write_bytes(damage)
    store = LocalOffsetStore(tmp_path, "127.0.0.1@one", "group")
    await store.write({QUEUE: 3})
    store.path.write_bytes(damage)
    assert await LocalOffsetStore(tmp_path, "127.0.0.1@one", "group").read(QUEUE) == 1


async def test_a_broadcasting_member_without_readable_offsets_does_not_start(
    tmp_path: Path,
) -> None:
    group = Group()
    path = tmp_path / f"{local_address()}@one" / "cg" / "offsets.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(64))
    with pytest.raises(OffsetFileError, match="repair or delete"):
        async with member(
            group, model=MessageModel.BROADCASTING, instance_name="one", local_offsets=tmp_path
        ):
            pass
