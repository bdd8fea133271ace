"""Requests that would take the event loop too long are refused, each in one line."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from congreve.broker.broker import Broker
from congreve.broker.config import BrokerConfig
from congreve.broker.group.client_processor import HEARTBEAT_MAX
from congreve.broker.group.consumer_processor import LOCK_BODY_MAX
from congreve.engine.config import StoreConfig
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand


async def refusal(broker: Broker, connection: Any, request: RemotingCommand) -> str:
    """The remark of the answer, which is a SYSTEM_ERROR."""
    answer: Any = broker.ports.server.handlers[request.code](request, connection)
    if asyncio.iscoroutine(answer):
        answer = await answer
    assert answer.code == ResponseCode.SYSTEM_ERROR
    return answer.remark or ""


def broker_in(root: Path) -> Broker:
    store = StoreConfig(
        root_dir=str(root),
        flush_disk_type="ASYNC_FLUSH",
        mapped_file_size_commit_log=1 << 20,
        max_hash_slot_num=1000,
        max_index_num=4000,
    )
    address = "127.0.0.1"
    return Broker(
        BrokerConfig(
            broker_name="b", broker_ip1=address, bind_address=address, listen_port=0, store=store
        )
    )


@pytest.mark.parametrize(
    ("code", "most"),
    [
        (RequestCode.HEART_BEAT, HEARTBEAT_MAX),
        (RequestCode.LOCK_BATCH_MQ, LOCK_BODY_MAX),
        (RequestCode.UNLOCK_BATCH_MQ, LOCK_BODY_MAX),
    ],
)
async def test_a_body_that_is_too_large_is_refused_unread(
    tmp_path: Path, connection: Any, code: int, most: int
) -> None:
    async with broker_in(tmp_path) as broker:
        request = RemotingCommand(code=code, body=b" " * (most + 1))
        remark = await refusal(broker, connection, request)
    assert f"{most + 1} bytes, {most} are the most" in remark


@pytest.mark.parametrize("queues", [2**31 - 1, -1])
async def test_a_group_with_too_many_retry_queues_is_refused(
    tmp_path: Path, connection: Any, queues: int
) -> None:
    body = b'{"groupName":"G","retryQueueNums":%d}' % queues
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    async with broker_in(tmp_path) as broker:
        remark = await refusal(broker, connection, RemotingCommand(code=code, body=body))
        assert "retryQueueNums" in remark
        assert "G" not in broker.managers.metadata.groups.table


@pytest.mark.parametrize("perm", [16, -1, 2**31 - 1])
async def test_a_topic_with_an_invalid_perm_is_refused(
    tmp_path: Path, connection: Any, perm: int
) -> None:
    fields = {
        "topic": "T",
        "defaultTopic": "TBW102",
        "readQueueNums": "1",
        "writeQueueNums": "1",
        "perm": str(perm),
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    request = RemotingCommand(code=RequestCode.UPDATE_AND_CREATE_TOPIC, ext_fields=fields)
    async with broker_in(tmp_path) as broker:
        assert "perm" in await refusal(broker, connection, request)
        assert "T" not in broker.managers.metadata.topics.table
