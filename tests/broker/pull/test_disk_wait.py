"""Pulls of messages that are not in memory: a thread reads them, and the answer is complete."""

import asyncio
import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from congreve.broker.broker import Broker
from congreve.broker.pull.disk_wait import DiskWait
from congreve.broker.requests.wait_limit import WaitLimit
from congreve.engine.config import StoreConfig
from congreve.engine.log.cold_reads import ColdReads
from congreve.engine.store import MessageStore
from congreve.records.message.message import Record
from congreve.records.record import decode_records
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.client import RemotingClient

from ..tool import TOPIC_FIELDS, local_config

MESSAGES = 1_000
BODY = 50_000  # most of the log is before the 32 MiB that are always in memory


class Pull:
    """The part of a held pull that DiskWait uses."""

    def __init__(self, connection) -> None:
        self.connection = connection
        self.frame = b"a frame"


class Disk:
    """A disk whose reads complete when the test decides."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.done = []
        self.answered: list[Pull] = []
        self.dismissed: list[Pull] = []
        self.pulls = DiskWait(
            fetch=self.fetch, give_back=self.answered.append, dismiss=self.dismissed.append
        )

    def fetch(self, offset, done) -> bool:
        self.asked.append(offset)
        self.done.append(done)
        return offset >= 0


async def test_pulls_of_the_same_place_wait_for_one_read(connection, turn):
    disk = Disk()
    pulls = [Pull(connection), Pull(connection), Pull(connection)]
    for pull, place in zip(pulls, (100, 100, 700), strict=True):
        disk.pulls.suspend(pull, place)
    assert disk.asked == [100, 700]
    threading.Thread(target=disk.done[0]).start()
    while not disk.answered:
        await asyncio.sleep(0.001)
    assert disk.answered == pulls[:2]
    assert len(disk.pulls) == 1


async def test_a_pull_does_not_wait_for_a_deleted_part_of_the_log(connection, turn):
    disk = Disk()
    pull = Pull(connection)
    disk.pulls.suspend(pull, -1)
    await turn()
    assert disk.answered == [pull] and len(disk.pulls) == 0


async def test_the_bytes_of_waiting_pulls_are_bounded(connection, turn):
    disk = Disk()
    disk.pulls.limit = WaitLimit(most_bytes=2 * len(Pull(connection).frame))
    pulls = [Pull(connection) for _ in range(4)]
    for pull, place in zip(pulls, (0, 0, 1), strict=False):
        disk.pulls.suspend(pull, place)
    assert disk.answered == [pulls[2]], "the broker waits for the disk when it answers this one"
    disk.done[0]()
    await turn()
    disk.pulls.suspend(pulls[3], 2)
    assert len(disk.pulls) == 1 and len(disk.answered) == 3


async def test_a_stopping_broker_dismisses_waiting_pulls(connection, turn):
    disk = Disk()
    pull = Pull(connection)
    disk.pulls.suspend(pull, 0)
    disk.pulls.stop()
    disk.done[0]()
    await turn()
    assert disk.dismissed == [pull]
    assert disk.answered == []


def body_of(number: int) -> bytes:
    return b"%08d" % number * (BODY // 8)


@pytest.fixture
def cold_store(tmp_path: Path) -> StoreConfig:
    """A store whose log is on disk and not in memory."""
    config = StoreConfig(
        root_dir=str(tmp_path / "store"),
        mapped_file_size_commit_log=16 << 20,
        message_index_enable=False,
        flush_disk_type="ASYNC_FLUSH",
        io_backend="mmap",
    )
    with MessageStore(config, disk_use=lambda _: 0.5) as store:
        for number in range(MESSAGES):
            properties = {"TAGS": "odd" if number % 2 else "even"}
            store.put(Record(topic="T", body=body_of(number), properties=properties))
    del store
    gc.collect()  # what is mapped stays in memory
    for path in Path(config.commit_log_dir).iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return config


@pytest.mark.parametrize(
    ("expression_type", "expression", "first", "step"),
    [("TAG", "*", 0, 1), ("TAG", "odd", 1, 2), ("SQL92", "TAGS = 'odd'", 1, 2)],
)
async def test_old_messages_are_read_completely_by_a_thread(
    cold_store: StoreConfig,
    monkeypatch: pytest.MonkeyPatch,
    expression_type: str,
    expression: str,
    first: int,
    step: int,
) -> None:
    fetched: list[int] = []
    fetch = ColdReads.fetch

    def noted_fetch(reads: ColdReads, offset: int, done: Callable[[], None]) -> bool:
        fetched.append(offset)
        return fetch(reads, offset, done)

    monkeypatch.setattr(ColdReads, "fetch", noted_fetch)
    config = local_config(enable_property_filter=True, store=cold_store)
    async with Broker(config) as broker:
        client = RemotingClient()
        address = f"127.0.0.1:{broker.port}"
        await client.invoke(address, RemotingCommand(code=17, ext_fields=dict(TOPIC_FIELDS)))
        bodies = await pull_all(client, address, expression_type, expression)
        await client.close()
    assert bodies == [body_of(number) for number in range(first, MESSAGES, step)]
    assert len(fetched) > 10


async def pull_all(
    client: RemotingClient, address: str, expression_type: str, expression: str
) -> list[bytes]:
    bodies: list[bytes] = []
    offset = 0
    while True:
        fields = {
            "consumerGroup": "G",
            "topic": "T",
            "queueId": "0",
            "queueOffset": str(offset),
            "maxMsgNums": "32",
            "sysFlag": "4",
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": expression,
            "subVersion": "0",
            "expressionType": expression_type,
        }
        answer = await client.invoke(address, RemotingCommand(code=11, ext_fields=fields))
        if answer.code != 0:
            assert answer.code == 19, answer.remark
            return bodies
        bodies += [record.body for record in decode_records(answer.body)]
        offset = int(answer.ext_fields["nextBeginOffset"])
