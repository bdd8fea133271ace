"""A master and a slave of ours on the test's event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from congreve.broker.broker import Broker
from congreve.broker.config import BrokerConfig
from congreve.namesrv.server import NameServer

SEGMENT_BYTES = 1 << 19


class Pair(NamedTuple):
    """Started brokers; `slave` is not started unless the test asked for it."""

    name_server: NameServer
    master: Broker
    slave: Broker


def broker_config(folder: Path, name_server: NameServer, **settings: str) -> BrokerConfig:
    """Settings of a small broker on 127.0.0.1 with ports of its own."""
    usual = {
        "bindAddress": "127.0.0.1",
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "listenPort": "0",
        "brokerName": "pair",
        "namesrvAddr": name_server.address,
        "storePathRootDir": str(folder),
        "mappedFileSizeCommitLog": str(SEGMENT_BYTES),
        "maxHashSlotNum": "1000",
        "maxIndexNum": "2000",
        "flushDiskType": "ASYNC_FLUSH",
    }
    return BrokerConfig().changed({**usual, **settings})


@asynccontextmanager
async def running_pair(
    folder: Path,
    *,
    with_slave: bool = True,
    master: dict[str, str] | None = None,
    slave: dict[str, str] | None = None,
) -> AsyncIterator[Pair]:
    """A name server, a master and a slave with these settings."""
    async with AsyncExitStack() as stack:
        name_server = await stack.enter_async_context(NameServer(host="127.0.0.1", port=0))
        first = Broker(broker_config(folder / "master", name_server, **(master or {})))
        await stack.enter_async_context(first)
        role = {"brokerRole": "SLAVE", "brokerId": "1"}
        second = Broker(broker_config(folder / "slave", name_server, **{**role, **(slave or {})}))
        if with_slave:
            await stack.enter_async_context(second)
        yield Pair(name_server, first, second)
