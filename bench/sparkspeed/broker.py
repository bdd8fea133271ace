"""A broker on the benchmark's store, in a process of its own."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from congreve.broker.broker import Broker
from congreve.broker.config import BrokerConfig
from congreve.client.admin import AdminClient
from congreve.namesrv.server import NameServer
from sparkspeed.store import BROKER, QUEUES, TOPIC


@contextmanager
def serving(root: Path, settings: dict[str, str]) -> Iterator[str]:
    """The name server's address while a broker serves the store."""
    process = subprocess.Popen(
        [sys.executable, "-m", "sparkspeed.broker", str(root), json.dumps(settings)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()


async def serve(root: str, settings: dict[str, str]) -> None:
    """Serve the store until the process is terminated."""
    async with NameServer(host="127.0.0.1", port=0) as name_server:
        config = BrokerConfig()
        config.apply(
            {
                **{"namesrvAddr": name_server.address, "bindAddress": "127.0.0.1"},
                **{"brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1", "listenPort": "0"},
                **{"storePathRootDir": root, "flushDiskType": "ASYNC_FLUSH"},
                "brokerName": BROKER,
                **{"messageIndexEnable": "false", "fileReservedTime": "100000"},
                **{"maxTransferBytesOnMessageInMemory": str(2 << 20)},
                **settings,
            }
        )
        async with Broker(config):
            async with AdminClient(name_server.address) as admin:
                await admin.create_topic(TOPIC, queues=QUEUES)
            print(name_server.address, flush=True)
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], json.loads(sys.argv[2])))
