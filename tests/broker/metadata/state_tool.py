"""A running broker and the requests that change its saved state."""

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from congreve.broker.broker import Broker
from congreve.broker.config import BrokerConfig
from congreve.broker.metadata.journaled_file import JournaledFile
from congreve.engine.config import StoreConfig
from congreve.engine.state.state_file import StateFile
from congreve.remoting.messages import fastjson
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import SendMessageRequestHeader
from congreve.remoting.transport.client import RemotingClient

GROUP = b'{"groupName":"G","retryMaxTimes":3}'
CREATE = {
    "topic": "T",
    "defaultTopic": "TBW102",
    "readQueueNums": "2",
    "writeQueueNums": "2",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
}


def send_fields(topic: str) -> dict[str, str]:
    return SendMessageRequestHeader(
        producer_group="P",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=1,
        flag=0,
    ).fields()


def pull_fields(topic: str, group: str = "TOOLS_CONSUMER") -> dict[str, str]:
    return {
        "consumerGroup": group,
        "topic": topic,
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
    }


def commit_fields(offset: int, group: str = "G", topic: str = "T") -> dict[str, str]:
    return {
        "consumerGroup": group,
        "topic": topic,
        "queueId": "0",
        "commitOffset": str(offset),
    }


def heartbeat(group: str) -> bytes:
    consumer = {"groupName": group, "subscriptionDataSet": []}
    return fastjson.dumps({"clientID": "c", "consumerDataSet": [consumer]}).encode()


class Tool:
    """A client of one broker, with one connection."""

    def __init__(self, broker: Broker, client: RemotingClient) -> None:
        self.broker = broker
        self.client = client

    async def ask(
        self, code: int, fields: dict[str, str] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        command = RemotingCommand(code=code, ext_fields=dict(fields or {}), body=body)
        return await self.client.invoke(f"127.0.0.1:{self.broker.port}", command)


@asynccontextmanager
async def running(root: Path, **settings: object) -> AsyncIterator[Tool]:
    config = BrokerConfig(
        broker_name="b",
        broker_ip1="127.0.0.1",
        bind_address="127.0.0.1",
        listen_port=0,
        store=StoreConfig(
            root_dir=str(root),
            io_backend="mmap",
            flush_disk_type="ASYNC_FLUSH",
            mapped_file_size_commit_log=1 << 20,
            mapped_file_size_consume_queue=20 * 300,
            max_hash_slot_num=100,
            max_index_num=400,
        ),
        **settings,
    )
    async with Broker(config) as broker:
        client = RemotingClient()
        try:
            yield Tool(broker, client)
        finally:
            await client.close()


@contextmanager
def delayed_writes(monkeypatch: pytest.MonkeyPatch, name: str) -> Iterator[threading.Event]:
    """Delay writes to the file of this name, and to its journal, until the event is set."""
    free = threading.Event()

    def wait(path: str) -> None:
        if path.endswith(name):
            assert free.wait(20)

    before_writes(monkeypatch, wait)
    yield free
    free.set()


def before_writes(monkeypatch: pytest.MonkeyPatch, call: Callable[[str], None]) -> None:
    """Call `call` with the path of each state file before it or its journal is written."""
    replace, append = StateFile.replace, JournaledFile.append

    def replace_later(file: StateFile, text: str) -> None:
        call(file.path)
        replace(file, text)

    def append_later(file: JournaledFile[Any], entry: object) -> None:
        call(file.path)
        append(file, entry)

    monkeypatch.setattr(StateFile, "replace", replace_later)
    monkeypatch.setattr(JournaledFile, "append", append_later)
