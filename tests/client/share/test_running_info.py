"""What a share consumer says about itself."""

import time
from pathlib import Path

import pytest

import congreve
from congreve.client import AdminClient, ConsumeFrom, Message, MessageQueue, Producer, ShareConsumer
from congreve.client.admin.reports import BrokerReports
from congreve.client.errors import BrokerError


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_consumer_says_what_it_pops(tmp_path: Path, orderly: bool) -> None:
    async with (
        congreve.serve(tmp_path, flushDiskType="ASYNC_FLUSH") as node,
        Producer(node.address, group="p") as producer,
        AdminClient(node.address) as admin,
        ShareConsumer(
            node.address,
            group="g",
            topics={"T": "*"},
            consume_from=ConsumeFrom.FIRST_OFFSET,
            orderly=orderly,
        ) as consumer,
    ):
        for _ in range(3):
            await producer.send(Message(topic="T", body=b"x"))
        await consumer._find_queues()
        received = []
        while len(received) < 3:
            received += await consumer.receive()
        await consumer.ack(received[0])
        config = node.broker.config
        reports = BrokerReports(admin, f"{config.broker_ip1}:{node.broker.port}")
        info = await reports.running_info("g", consumer.client_id)
        ((queue, row),) = info.mq_pop_table.items()
        assert queue == MessageQueue("T", config.broker_name, -1)
        assert row.wait_ack_count == 2
        assert abs(row.last_pop_timestamp - time.time() * 1000) < 600_000
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        assert info.properties["PROP_CONSUMEORDERLY"] == str(orderly).lower()
        assert [each.topic for each in info.subscription_set] == ["T"]
        assert "threading.py" in (info.jstack or "")
        with pytest.raises(BrokerError):
            await reports.running_info("other", consumer.client_id)
