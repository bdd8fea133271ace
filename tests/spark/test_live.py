"""A store's files read while a broker of its own process writes them, through any backend."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from congreve.io_backends.backends import BACKENDS, refusal
from congreve.spark.batch import BatchReader
from congreve.spark.options import parse
from congreve.spark.schema import checked_schema, wanted_schema

COUNT = 6_000
BATCH = 50
WRITER = """
import asyncio, sys
from congreve.broker.broker import Broker
from congreve.broker.config import BrokerConfig
from congreve.client.admin import AdminClient
from congreve.client.message import Message
from congreve.client.producer.producer import Producer
from congreve.namesrv.server import NameServer

root, backend, count, batch = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

async def main():
    async with NameServer(host="127.0.0.1", port=0) as name_server:
        config = BrokerConfig()
        config.apply({
            "namesrvAddr": name_server.address, "bindAddress": "127.0.0.1", "listenPort": "0",
            "brokerIP1": "127.0.0.1", "storePathRootDir": root, "ioBackend": backend,
            "flushDiskType": "SYNC_FLUSH", "mappedFileSizeCommitLog": str(1 << 20),
        })
        async with Broker(config):
            async with AdminClient(name_server.address) as admin:
                await admin.create_topic("T", queues=4)
            async with Producer(name_server.address, group="g") as producer:
                queues = await producer.queues("T")
                for first in range(0, count, batch):
                    messages = [Message(topic="T", body=b"%d" % n * 20) for n in
                                range(first, first + batch)]
                    await producer.send_batch(messages, queue=queues[first // batch % 4])
                    if not first % (10 * batch):
                        print(first + batch, flush=True)
            print(count, flush=True)
            sys.stdin.read()

asyncio.run(main())
"""


def rows(root: Path) -> list[dict[str, Any]]:
    parsed = parse({"storePath": str(root), "topic": "T", "verifyCrc": "true",
                    "columns": "queueId,queueOffset,body"})  # fmt: skip
    reader = BatchReader(parsed, checked_schema(wanted_schema(parsed), parsed))
    return [row for part in reader.partitions() for b in reader.read(part) for row in b.to_pylist()]


@pytest.mark.parametrize("backend", BACKENDS)
def test_acknowledged_messages_are_read_completely_and_in_order(
    tmp_path: Path, backend: str
) -> None:
    if (reason := refusal(backend, str(tmp_path))) is not None:
        pytest.skip(reason)
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path), backend, str(COUNT), str(BATCH)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdout is not None
    reads = 0
    try:
        for line in writer.stdout:
            sent = int(line)  # acknowledged under SYNC_FLUSH: on disk
            found = rows(tmp_path)
            assert sent <= len(found) <= COUNT
            for queue_id in range(4):
                own = [row for row in found if row["queueId"] == queue_id]
                assert [row["queueOffset"] for row in own] == list(range(len(own)))
                numbers = [n for n in range(COUNT) if n // BATCH % 4 == queue_id][: len(own)]
                assert [row["body"] for row in own] == [b"%d" % n * 20 for n in numbers]
            reads += 1
            if sent == COUNT:
                break
    finally:
        writer.communicate()
    assert reads > 5
    assert len(rows(tmp_path)) == COUNT
