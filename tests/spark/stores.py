"""Stores to read: one that 4.9.4 wrote, and others that this module writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from congreve.base.clock import ManualClock
from congreve.engine.config import StoreConfig
from congreve.engine.store import MessageStore
from congreve.records.message.message import Record

TINY: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "golden/tiny_store.json").read_text()
)
HOST = ("127.0.0.1", 10911)
BEGIN_MS = 1_750_000_000_000
SETTINGS = {
    "mapped_file_size_commit_log": 64 << 10,
    "mapped_file_size_consume_queue": 20 * 64,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
    "flush_disk_type": "ASYNC_FLUSH",
}


def write_tiny(root: Path) -> Path:
    """The store of 4.9.4, file by file."""
    for name, file in TINY["files"].items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes.fromhex(file["hex"]).ljust(file["size"], b"\0"))
    return root


def open_store(root: Path, clock: ManualClock | None = None, **settings: Any) -> MessageStore:
    """A store with small files."""
    config = StoreConfig(root_dir=str(root), **{**SETTINGS, **settings})
    return MessageStore(config, clock=clock or ManualClock(BEGIN_MS))


def put(
    store: MessageStore,
    number: int,
    queues: int = 4,
    topic: str = "T",
    body: bytes | None = None,
) -> None:
    """Message `number`: one of ten tags, a key of its own, 100 ms after the one before."""
    clock = store.clock
    assert isinstance(clock, ManualClock)
    clock.set(BEGIN_MS + 100 * number)
    store.put(
        Record(
            topic=topic,
            body=b"body %d" % number * 9 if body is None else body,
            properties={
                "TAGS": f"Tag{number % 10}",
                "KEYS": f"order-{number} customer-{number % 7}",
                "UNIQ_KEY": f"U{number:08d}",
                "CLUSTER": "C",
            },
            queue_id=number % queues,
            born_timestamp=BEGIN_MS + 100 * number - 5,
            born_host=HOST,
            store_host=HOST,
        )
    )


def write(root: Path, messages: int, **settings: Any) -> Path:
    """A store of `messages` in four queues of topic T."""
    with open_store(root, **settings) as store:
        for number in range(messages):
            put(store, number)
    return root
