"""The answer to a send of a timed message has the handle that takes it back, as in RocketMQ 5.

tests/broker/serving/test_generated_requests.py compares the answers of compiled code with
those of the handler.
"""

import time
from pathlib import Path

import pytest

import congreve
from congreve.client import AdminClient, Message, Producer
from congreve.client.errors import BrokerError
from congreve.records.message.recall_handle import RecallHandle

MINUTE_MS = 60_000


async def test_a_timed_message_is_taken_back_by_the_handle_of_its_send(
    tmp_path: Path,
) -> None:
    due_ms = int(time.time() * 1000) + 10 * MINUTE_MS
    async with (
        congreve.serve(tmp_path, flushDiskType="SYNC_FLUSH") as node,
        Producer(node.address, group="p") as producer,
        AdminClient(node.address) as admin,
    ):
        name = node.broker.config.broker_name
        await producer.send(Message(topic="T", body=b"x"))
        # The handler serves those that do not wait for the disk.
        for wait in (True, False):
            sent = await producer.send(Message(topic="T", body=b"x", deliver_ms=due_ms, wait=wait))
            assert sent.recall_handle is not None
            wanted = ("T", name, str(due_ms + 1), sent.message_id)
            assert RecallHandle.decode(sent.recall_handle) == wanted
            await admin.timers.recall(sent.recall_handle)
            with pytest.raises(BrokerError):
                await admin.timers.recall_sent(sent)
        for message in (
            Message(topic="T", body=b"x"),
            Message(topic="T", body=b"x", delay_level=18),
            Message(topic="T", body=b"x", deliver_ms=1),
        ):
            assert (await producer.send(message)).recall_handle is None
