"""Leases and timeouts use the monotonic clock; the reference's use the system's clock."""

from pathlib import Path
from typing import Any

import pytest

from congreve.base.clock import ManualClock
from congreve.base.steps import at_once
from congreve.broker.broker import Broker
from congreve.broker.group.clients import CHANNEL_EXPIRED_S, ClientChannel
from congreve.broker.group.locks import LEASE_MS
from congreve.engine.config import StoreConfig
from congreve.remoting.messages.bodies import ConsumerData
from congreve.remoting.messages.body import MessageQueue

from ..tool import local_config

DAY_MS = 86_400_000
NOW_MS = 1_700_000_000_000
GROUP = ConsumerData(
    group_name="G",
    consume_type="CONSUME_PASSIVELY",
    message_model="CLUSTERING",
    consume_from_where="CONSUME_FROM_LAST_OFFSET",
)


@pytest.mark.parametrize("jump_ms", [-DAY_MS, DAY_MS])
async def test_setting_the_clock_neither_extends_a_lock_nor_removes_a_member(
    tmp_path: Path, connection: Any, another_connection: Any, jump_ms: int
) -> None:
    wall, uptime = ManualClock(NOW_MS), ManualClock(7_000)
    store = StoreConfig(root_dir=str(tmp_path), max_hash_slot_num=1000, max_index_num=4000)
    config = local_config(store=store)
    queue = MessageQueue(topic="T", broker_name="b", queue_id=0)
    broker = Broker(config, clock=wall, monotonic=lambda: uptime.now() / 1000)
    async with broker:
        members = broker.managers.members
        members.consumers.register(GROUP, ClientChannel(connection, "c1", "JAVA", 401), True)
        members.producers.register("P", ClientChannel(another_connection, "c2", "JAVA", 401))
        assert members.locks.lock("G", [queue], "c1") == [queue]
        wall.advance(jump_ms)
        await members.close_silent()
        at_once(members.locks.expiry_steps())
        assert not connection.closed and not another_connection.closed, (
            "both have just sent a heartbeat"
        )
        assert members.locks.lock("G", [queue], "c2") == [], "its holder is alive"
        uptime.advance(LEASE_MS + 1)
        assert members.locks.lock("G", [queue], "c2") == [queue], "its holder is dead"
        uptime.advance(CHANNEL_EXPIRED_S * 1000)
        await members.close_silent()
        assert connection.closed and another_connection.closed
