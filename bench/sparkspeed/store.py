"""Creates a store to read: messages in eight queues, with a hundred tags and store times over a
day."""

import struct
from collections.abc import Callable
from pathlib import Path

from congreve.base.clock import ManualClock
from congreve.engine.config import StoreConfig
from congreve.engine.store import MessageStore
from congreve.records.message.message import Record
from congreve.records.message.property_codec import encode_properties

TOPIC = "bench"
BROKER = "broker-a"
QUEUES = 8
TAGS = 100
DAY_MS = 86_400_000
BEGIN_MS = 1_750_000_000_000
BODY = 128
BATCH = 1_000
HOST = ("127.0.0.1", 10911)


def digits(number: int) -> bytes:
    """The body of a message: its number, repeated."""
    return (b"%016d" % number) * (BODY // 16)


def fill(
    root: Path,
    messages: int,
    body_of: Callable[[int], bytes] = digits,
    *,
    segment_bytes: int = 1 << 30,
) -> None:
    """Write `messages` messages; their store times spread evenly over DAY_MS."""
    clock = ManualClock(BEGIN_MS)
    config = StoreConfig(
        root_dir=str(root),
        flush_disk_type="ASYNC_FLUSH",
        message_index_enable=False,
        mapped_file_size_commit_log=segment_bytes,
    )
    with MessageStore(config, clock=clock) as store:
        for start in range(0, messages, BATCH):
            clock.set(BEGIN_MS + DAY_MS * start // messages)
            count = min(BATCH, messages - start)
            batch = b"".join(element(start + i, body_of(start + i)) for i in range(count))
            store.put_batch(
                Record(
                    topic=TOPIC,
                    body=b"",
                    properties={"CLUSTER": "DefaultCluster"},
                    queue_id=start // BATCH % QUEUES,
                    born_timestamp=clock.now() - 3,
                    born_host=HOST,
                    store_host=HOST,
                ),
                batch,
            )


def element(number: int, body: bytes) -> bytes:
    """One message of a batch, in the client's encoding."""
    properties = encode_properties(
        {
            "KEYS": f"order-{number}",
            "UNIQ_KEY": f"7F0000010000{number:020X}",
            "WAIT": "true",
            "TAGS": f"Tag{number % TAGS}",
        }
    )
    size = 22 + len(body) + len(properties)
    return (
        struct.pack(">iiiii", size, 0, 0, 0, len(body))
        + body
        + struct.pack(">h", len(properties))
        + properties
    )
