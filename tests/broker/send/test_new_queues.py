"""The first message of a queue: a thread makes its folder and file, and only its sender waits."""

import asyncio
import struct
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from harness.eventually import eventually

from congreve.broker.broker import Broker
from congreve.broker.config import BrokerConfig
from congreve.engine.config import StoreConfig
from congreve.io_backends.files.file_system import DISK
from congreve.io_backends.files.intercepted import InterceptedFileSystem
from congreve.records.record import parse_offset_message_id
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.client import RemotingClient

from ..tool import TOPIC_FIELDS

T = TypeVar("T")
TWO_QUEUES = {"readQueueNums": "2", "writeQueueNums": "2"}
MAKES = ("make_folder", "create_map")
SEND = {
    **{"a": "P", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000123"},
    **{"h": "0", "i": "WAIT\x01true", "j": "0", "k": "false", "m": "false"},
}
HALF = "TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01U\x02WAIT\x01true"
BATCH = struct.pack(">iiiii1sh", 23, 0, 0, 3, 1, b"x", 0)


class HeldDisk(InterceptedFileSystem):
    """Notes which thread makes files of queues; with `held` these calls wait."""

    def __init__(self) -> None:
        super().__init__(DISK)
        self.threads: set[str] = set()
        self.free = threading.Event()
        self.free.set()
        self.waiting = threading.Event()

    def around(self, call: str, path: str, size: int, make: Callable[[], T]) -> T:
        if call in MAKES and "/consumequeue/" in path:
            self.threads.add(threading.current_thread().name)
            self.waiting.set()
            assert self.free.wait(60)
        return make()


class Clients:
    """A broker over a held disk, a client that sends first messages, and its neighbour."""

    def __init__(self, broker: Broker, disk: HeldDisk) -> None:
        self.broker, self.disk = broker, disk
        self.first, self.neighbour = RemotingClient(), RemotingClient()

    async def ask(self, code: int, fields: dict[str, str], body: bytes = b"x") -> RemotingCommand:
        request = RemotingCommand(code=code, ext_fields=dict(fields), body=body)
        return await self.first.invoke(self.broker.address, request)

    async def send(self, **changes: str) -> RemotingCommand:
        answer = await self.ask(310, SEND | changes)
        assert answer.code == 0, answer.remark
        return answer

    async def neighbour_sends(self) -> None:
        request = RemotingCommand(code=310, ext_fields=SEND | {"b": "Known"}, body=b"n")
        assert (await self.neighbour.invoke(self.broker.address, request)).code == 0


@asynccontextmanager
async def clients(root: Path, lanes: int) -> AsyncIterator[Clients]:
    config = BrokerConfig(
        broker_name="b",
        broker_ip1="127.0.0.1",
        bind_address="127.0.0.1",
        listen_port=0,
        network_threads=lanes,
        store=StoreConfig(
            root_dir=str(root),
            mapped_file_size_commit_log=4 << 20,
            max_hash_slot_num=1000,
            max_index_num=4000,
            message_delay_level="1s 1h",
        ),
    )
    disk = HeldDisk()
    async with Broker(config, files=disk) as broker:
        made = Clients(broker, disk)
        try:
            for topic in ("T", "Known"):
                answer = await made.ask(17, TOPIC_FIELDS | {"topic": topic} | TWO_QUEUES)
                assert answer.code == 0, answer.remark
            await made.neighbour_sends()
            yield made
        finally:
            disk.free.set()
            await made.first.close()
            await made.neighbour.close()


async def plain(at: Clients) -> RemotingCommand:
    return await at.ask(310, SEND | {"e": "1"})


async def batch(at: Clients) -> RemotingCommand:
    return await at.ask(320, SEND | {"e": "1", "m": "true"}, BATCH)


async def to_a_new_topic(at: Clients) -> RemotingCommand:
    return await at.ask(310, SEND | {"b": "MadeOnSend"})


async def delayed(at: Clients) -> RemotingCommand:
    return await at.ask(310, SEND | {"i": "DELAY\x012\x02WAIT\x01true"})


async def timed(at: Clients) -> RemotingCommand:
    return await at.ask(310, SEND | {"i": "TIMER_DELAY_SEC\x013600\x02WAIT\x01true"})


async def half(at: Clients) -> RemotingCommand:
    return await at.ask(310, SEND | {"i": HALF, "f": "4"})


async def commit(at: Clients) -> RemotingCommand:
    prepared = await at.send(i=HALF, f="4", e="1")
    at.disk.waiting.clear()
    at.disk.free.clear()
    return await at.ask(37, end_of(prepared, 8))


def end_of(prepared: RemotingCommand, how: int) -> dict[str, str]:
    return {
        "producerGroup": "P",
        "tranStateTableOffset": prepared.ext_fields["queueOffset"],
        "commitLogOffset": str(parse_offset_message_id(prepared.ext_fields["msgId"])[1]),
        "commitOrRollback": str(how),
        "fromTransactionCheck": "false",
        "msgId": "U",
    }


async def send_back(at: Clients) -> RemotingCommand:
    sent = await at.send(e="1")
    at.disk.waiting.clear()
    at.disk.free.clear()
    fields = {
        "offset": str(parse_offset_message_id(sent.ext_fields["msgId"])[1]),
        "group": "G",
        "delayLevel": "2",
        "maxReconsumeTimes": "16",
    }
    return await at.ask(36, fields)


@pytest.mark.parametrize("lanes", [0, 1])
@pytest.mark.parametrize("first", [plain, batch, to_a_new_topic, delayed, timed, half])
async def test_only_the_sender_of_a_first_message_waits_for_the_disk(
    first, lanes: int, tmp_path: Path
) -> None:
    async with clients(tmp_path, lanes) as at:
        at.disk.waiting.clear()
        at.disk.free.clear()
        await check_that_only_it_waits(first, at)


@pytest.mark.parametrize("lanes", [0, 1])
@pytest.mark.parametrize("first", [commit, send_back])
async def test_only_the_first_retry_and_commit_wait_for_the_disk(
    first, lanes: int, tmp_path: Path
) -> None:
    async with clients(tmp_path, lanes) as at:
        await check_that_only_it_waits(first, at)


async def check_that_only_it_waits(first, at: Clients) -> None:
    asking = asyncio.create_task(first(at))
    await eventually(lambda: at.disk.waiting.is_set() and not at.disk.free.is_set())
    for _ in range(3):
        await at.neighbour_sends()
    assert not asking.done()
    at.disk.free.set()
    assert (await asking).code == 0
    assert {name.rpartition("_")[0] for name in at.disk.threads} == {"queuefiles"}


async def test_a_delivery_to_a_new_queue_waits_for_its_file(tmp_path: Path) -> None:
    async with clients(tmp_path, 1) as at:
        await at.send(i="DELAY\x011\x02WAIT\x01true", e="1")
        at.disk.waiting.clear()
        at.disk.free.clear()
        await eventually(at.disk.waiting.is_set)
        await at.neighbour_sends()
        queue = at.broker.store.queues.get("T", 1)
        assert queue.max == 0
        at.disk.free.set()
        await eventually(lambda: queue.max == 1)


@pytest.mark.parametrize("lanes", [0, 1])
async def test_first_messages_of_a_connection_keep_their_order(lanes: int, tmp_path: Path) -> None:
    async with clients(tmp_path, lanes) as at:
        bodies = [b"%d" % number for number in range(200)]
        answers = await asyncio.gather(
            *(at.ask(310, SEND | {"e": str(n % 2)}, body) for n, body in enumerate(bodies))
        )
        for queue_id in range(2):
            offsets = [int(answer.ext_fields["queueOffset"]) for answer in answers[queue_id::2]]
            assert offsets == list(range(100))
