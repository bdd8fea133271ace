"""Offsets that are kept twice at once: the newer ones stay."""

import asyncio
from pathlib import Path

from congreve.client.message import MessageQueue
from congreve.client.offsetstore import LocalOffsetStore, RemoteOffsetStore

QUEUE = MessageQueue("T", "broker-a", 0)


async def test_an_older_offset_never_overtakes_a_newer_one() -> None:
    """Brokers work on several requests of a connection at once: the first may be served last."""
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


async def test_a_file_is_written_by_one_at_a_time(tmp_path: Path) -> None:
    store = LocalOffsetStore(tmp_path, "127.0.0.1@one", "group")
    await asyncio.gather(*(store.write({QUEUE: offset}) for offset in range(50)))
    assert await LocalOffsetStore(tmp_path, "127.0.0.1@one", "group").read(QUEUE) == 49
