"""Writes tests/golden/earlier_stores.zip: `PYTHON tests/harness/earlier_store.py FILE`.

PYTHON is that of an environment with the version whose stores tests keep (commit aec99484). The
file has two stores of one broker: `killed`, as a kill leaves it, and `stopped`.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

import congreve
from congreve.client import Message
from congreve.client.admin import AdminClient
from congreve.client.message import MessageQueue
from congreve.client.producer.transaction import TransactionProducer, TransactionState

NAME = "earlier"
SETTINGS = {
    "brokerName": NAME,
    "flushDiskType": "SYNC_FLUSH",
    "mappedFileSizeCommitLog": 1 << 18,
    "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}


async def fill(node: congreve.AsyncNode) -> None:
    """Two topics, one of which was deleted and made again, and what waits inside a broker."""
    async with AdminClient(node.address) as admin, node.producer("p") as producer:
        for topic in ("Kept", "Again"):
            await admin.create_topic(topic, queues=2)
        for number in range(20):
            queue = MessageQueue("Kept", NAME, number % 2)
            message = Message(topic="Kept", body=b"kept %d" % number, keys=f"k{number}", tags="a")
            await producer.send(message, queue=queue)
        queue = MessageQueue("Again", NAME, 0)
        for number in range(6):
            await producer.send(Message(topic="Again", body=b"old %d" % number), queue=queue)
        await admin.delete_topic("Again")
        await admin.create_topic("Again", queues=2)
        for number in range(3):
            await producer.send(Message(topic="Again", body=b"new %d" % number), queue=queue)
        await producer.send(Message(topic="Kept", body=b"level", delay_level=18))
        async with TransactionProducer(
            node.address, group="t", check=lambda _: TransactionState.UNKNOWN
        ) as transactions:
            half = Message(topic="Kept", body=b"half")
            await transactions.send_in_transaction(half, lambda *_: TransactionState.UNKNOWN)
            ended = Message(topic="Kept", body=b"committed", keys="committed")
            await transactions.send_in_transaction(ended, lambda *_: TransactionState.COMMIT)
        async with node.consumer("g", topics={"Kept": "*"}) as consumer:
            messages = aiter(consumer)
            for _ in range(8):
                await anext(messages)
        await asyncio.sleep(2)  # the state files are written


async def write(root: Path) -> None:
    """Fill a store in `root`, and copy it while it is open."""
    async with congreve.serve(root / "node", **SETTINGS) as node:
        await fill(node)
        shutil.copytree(root / "node/store", root / "killed")
    shutil.move(root / "node/store", root / "stopped")


def main(target: Path) -> None:
    """Write the file."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        asyncio.run(write(root))
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for name in ("killed", "stopped"):
                for file in sorted((root / name).rglob("*")):
                    archive.write(file, file.relative_to(root))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
