"""Damage to queues while a broker runs: a thread repairs it, and no message is lost."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from congreve.broker.broker import Broker
from congreve.broker.config import BrokerConfig
from congreve.engine.config import StoreConfig
from congreve.engine.recovery.repair import LateChecks, QueueRepair
from congreve.records.message.message import Record
from congreve.records.message.topics import TRANS_HALF_TOPIC
from congreve.records.record import decode_records
from congreve.remoting.messages.codes import RequestCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.client import RemotingClient

from ..tool import PULL_FIELDS, TOPIC_FIELDS, local_config

MESSAGES = 20_000
ENTRY = 20  # bytes
SEGMENT = 16 << 20
PULL = PULL_FIELDS | {"maxMsgNums": "32", "expressionType": "TAG"}


@pytest.fixture
def repairs(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """CPU seconds of each repair."""
    found: list[float] = []
    repair = QueueRepair.repair

    def timed(*args: object) -> int:
        started = time.thread_time()
        changed = repair(*args)  # type: ignore[arg-type]
        found.append(time.thread_time() - started)
        return changed

    monkeypatch.setattr(QueueRepair, "repair", timed)
    return found


@pytest.mark.parametrize("compiled", [True, False])
async def test_damage_to_a_whole_queue_file_does_not_block_the_event_loop(
    tmp_path: Path, repairs: list[float], compiled: bool
) -> None:
    # Compiled code leaves such pulls to the handler.
    async with Broker(config_of(tmp_path, slave_read_enable=not compiled)) as broker:
        client = RemotingClient()
        address = f"127.0.0.1:{broker.port}"
        await fill(broker, client, "T")
        fields = {**PULL, "queueOffset": "0"}
        await client.invoke(address, RemotingCommand(code=11, ext_fields=fields))
        damage(broker, "T")
        watch = asyncio.create_task(longest_turn())
        fields = {**PULL, "queueOffset": "100"}
        answer = await client.invoke(address, RemotingCommand(code=11, ext_fields=fields))
        watch.cancel()
        await client.close()
    assert [record.body for record in decode_records(answer.body)] == [
        b"%d" % number for number in range(100, 132)
    ]
    assert len(repairs) == 1
    assert await watch < repairs[0] / 2


@pytest.mark.parametrize(
    ("code", "topic", "fields"),
    [
        (RequestCode.VIEW_MESSAGE_BY_ID, "T", {"offset": "OFFSET"}),
        (
            RequestCode.CONSUMER_SEND_MSG_BACK,
            "T",
            {"offset": "OFFSET", "group": "G", "delayLevel": "3", "originTopic": "T"},
        ),
        (
            RequestCode.END_TRANSACTION,
            TRANS_HALF_TOPIC,
            {
                "producerGroup": "P",
                "tranStateTableOffset": "100",
                "commitLogOffset": "OFFSET",
                "commitOrRollback": "12",
                "fromTransactionCheck": "false",
                "msgId": "",
            },
        ),
    ],
)
async def test_a_read_by_offset_in_a_damaged_queue_file_does_not_block_the_event_loop(
    tmp_path: Path,
    repairs: list[float],
    code: RequestCode,
    topic: str,
    fields: dict[str, str],
) -> None:
    async with Broker(config_of(tmp_path)) as broker:
        client = RemotingClient()
        await fill(broker, client, topic)
        offset = str(broker.store.queues.get(topic, 0)[100][0])
        damage(broker, topic)
        watch = asyncio.create_task(longest_turn())
        fields = {key: value.replace("OFFSET", offset) for key, value in fields.items()}
        request = RemotingCommand(code=code, ext_fields=fields)
        answer = await client.invoke(f"127.0.0.1:{broker.port}", request)
        watch.cancel()
        await client.close()
    assert answer.code == 0, answer.remark
    assert len(repairs) == 1
    assert await watch < repairs[0] / 2


@pytest.mark.parametrize("compiled", [True, False])
async def test_a_flipped_tags_code_hides_no_message_before_its_file_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: bool
) -> None:
    """A start checks 80 MB of queue files; the thread that checks the others has not begun."""
    monkeypatch.setattr("congreve.engine.recovery.recovery.CHECKED_AT_START", 0)
    monkeypatch.setattr(LateChecks, "start", lambda self: None)
    store = StoreConfig(
        root_dir=str(tmp_path),
        flush_disk_type="ASYNC_FLUSH",
        mapped_file_size_commit_log=SEGMENT,
        mapped_file_size_consume_queue=30 * ENTRY,
    )
    config = config_of(tmp_path, slave_read_enable=not compiled)
    config.store = store
    client = RemotingClient()
    async with Broker(config) as broker:
        create = RemotingCommand(code=17, ext_fields=dict(TOPIC_FIELDS))
        await client.invoke(f"127.0.0.1:{broker.port}", create)
        for number in range(100):
            broker.store.put(Record(topic="T", body=b"%d" % number, properties={"TAGS": "a"}))
        files = broker.store.queues.get("T", 0).files
    for number in (5, 50, 95):
        with Path(files[number // 30]).open("r+b") as file:
            file.seek(number % 30 * ENTRY + ENTRY - 1)
            file.write(b"\0")
    found: list[bytes] = []
    async with Broker(config) as broker:
        queue = broker.store.queues.get("T", 0)
        assert queue.unchecked == {0, 1, 2, 3}
        offset = 0
        while offset < 100:
            fields = {**PULL, "queueOffset": str(offset), "subscription": "a"}
            request = RemotingCommand(code=11, ext_fields=fields)
            answer = await client.invoke(f"127.0.0.1:{broker.port}", request)
            found += [record.body for record in decode_records(answer.body)]
            offset = int(answer.ext_fields["nextBeginOffset"])
        assert queue.unchecked is None
    await client.close()
    assert found == [b"%d" % number for number in range(100)]


def config_of(root: Path, **settings: Any) -> BrokerConfig:
    return local_config(
        store=StoreConfig(
            root_dir=str(root),
            flush_disk_type="ASYNC_FLUSH",
            mapped_file_size_commit_log=SEGMENT,
        ),
        **settings,
    )


async def fill(broker: Broker, client: RemotingClient, topic: str) -> None:
    address = f"127.0.0.1:{broker.port}"
    if topic == "T":
        await client.invoke(address, RemotingCommand(code=17, ext_fields=dict(TOPIC_FIELDS)))
    for number in range(MESSAGES):
        broker.store.put(
            Record(topic=topic, body=b"%d" % number, properties={"PGROUP": "P", "TRAN_MSG": "true"})
        )
        if number % 1000 == 0:
            await asyncio.sleep(0)


def damage(broker: Broker, topic: str) -> None:
    with Path(broker.store.queues.get(topic, 0).files[0]).open("r+b") as file:
        file.write(b"\1" * 20 * MESSAGES)


async def longest_turn() -> float:
    """CPU seconds of the event loop's longest turn, until it is cancelled."""
    longest = 0.0
    try:
        while True:
            started = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - started)
    except asyncio.CancelledError:
        return longest
