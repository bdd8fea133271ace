"""Answers that the kernel sends from the log's pages: the same bytes for every way to read."""

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from congreve.broker.broker import Broker
from congreve.broker.config import BrokerConfig
from congreve.engine.config import StoreConfig
from congreve.engine.store import MessageStore
from congreve.records.message.message import Record
from congreve.records.record import decode_records
from congreve.remoting.errors import ConnectionLostError
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.client import RemotingClient

from ..tool import local_config

MESSAGES = 4_000
BATCH = 256
BODY = 1_000
SMALL = 4_096  # bytes of the reader's socket


def body_of(number: int) -> bytes:
    return b"%08d" % number * (BODY // 8)


@pytest.fixture
def config(tmp_path: Path) -> BrokerConfig:
    """A broker whose store has one queue of neighbouring messages in several segments."""
    store = StoreConfig(
        root_dir=str(tmp_path / "store"),
        mapped_file_size_commit_log=1 << 20,
        message_index_enable=False,
        flush_disk_type="ASYNC_FLUSH",
        io_backend="mmap",
        max_transfer_count_on_message_in_memory=BATCH,
        max_transfer_bytes_on_message_in_memory=1 << 20,
    )
    with MessageStore(store, disk_use=lambda _: 0.5) as filled:
        for number in range(MESSAGES):
            filled.put(Record(topic="TBW102", body=body_of(number)))
    return local_config(store=store)


def pull(offset: int, opaque: int = 0) -> RemotingCommand:
    fields = {
        "consumerGroup": "G",
        "topic": "TBW102",
        "queueId": "0",
        "queueOffset": str(offset),
        "maxMsgNums": str(BATCH),
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
    }
    return RemotingCommand(code=11, opaque=opaque, ext_fields=fields)


def frames(peer: socket.socket) -> Iterator[bytes]:
    stream = bytearray()
    while data := peer.recv(SMALL):
        stream += data
        while len(stream) >= 4 and len(stream) >= 4 + int.from_bytes(stream[:4], "big"):
            size = 4 + int.from_bytes(stream[:4], "big")
            yield bytes(stream[:size])
            del stream[:size]


def read_slowly(port: int, answers: list[RemotingCommand]) -> None:
    """Ask for everything at once and read it through a small socket."""
    with socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
        peer.settimeout(30)
        peer.connect(("127.0.0.1", port))
        offsets = range(0, MESSAGES, BATCH // 2)
        peer.sendall(b"".join(pull(offset, offset).encode() for offset in offsets))
        for frame in frames(peer):
            answers.append(RemotingCommand.decode(frame))
            if len(answers) == len(offsets):
                return


async def first_pulls(client: RemotingClient, address: str) -> RemotingCommand:
    """Send pulls: the first creates the group, and the event loop validates it."""
    for _ in range(3):
        answer = await client.invoke(address, pull(0))
    return answer


async def in_thread(target, *arguments) -> None:
    await asyncio.get_running_loop().run_in_executor(None, target, *arguments)


async def test_a_slow_reader_gets_every_answer_complete_and_in_order(config):
    answers: list[RemotingCommand] = []
    async with Broker(config) as broker:
        client = RemotingClient()
        await first_pulls(client, f"127.0.0.1:{broker.port}")
        await client.close()
        await in_thread(read_slowly, broker.port, answers)
    assert [answer.opaque for answer in answers] == list(range(0, MESSAGES, BATCH // 2))
    for answer in answers:
        bodies = [record.body for record in decode_records(answer.body)]
        end = int(answer.ext_fields["nextBeginOffset"])
        assert answer.opaque < end <= answer.opaque + BATCH
        assert bodies == [body_of(number) for number in range(answer.opaque, end)]


async def test_a_segment_with_pages_in_a_socket_is_never_overwritten(config):
    async with Broker(config) as broker:
        client = RemotingClient()
        await first_pulls(client, f"127.0.0.1:{broker.port}")
        await client.close()
        oldest, second = broker.store.log.segments[:2]
        assert oldest.is_sent_from and not second.is_sent_from
        inodes = [os.stat(segment.path).st_ino for segment in (oldest, second)]
        broker.store.log.delete_oldest()
        broker.store.log.delete_oldest()
        folder = Path(config.store.commit_log_dir + ".prepared")
        kept = [path.stat().st_ino for path in folder.iterdir()]
        assert inodes[0] not in kept and inodes[1] in kept


@pytest.mark.parametrize("scrubbed", [True, False])
async def test_a_truncated_file_closes_the_connection_and_sends_no_wrong_byte(config, scrubbed):
    """Or the broker notices it, because it checks what no scrub has found sound since the start."""
    async with Broker(config) as broker:
        client = RemotingClient()
        address = f"127.0.0.1:{broker.port}"
        whole = await first_pulls(client, address)
        last = decode_records(whole.body)[-1]
        os.truncate(broker.store.log.segments[0].path, last.physical_offset + BODY // 2)
        if scrubbed:
            broker.store.log.check_below(0)
            with pytest.raises(ConnectionLostError):
                await client.invoke(address, pull(0))
        else:
            part = await client.invoke(address, pull(0))
            assert whole.body.startswith(part.body)
            assert len(part.body) <= last.physical_offset
        again = await client.invoke(address, pull(MESSAGES - 1))
        assert [record.body for record in decode_records(again.body)] == [body_of(MESSAGES - 1)]
        await client.close()
