"""The broker removes the members of closed connections in pieces, however many end together."""

import itertools
from pathlib import Path
from typing import Any

from congreve.broker.broker import Broker
from congreve.broker.config import BrokerConfig
from congreve.broker.group.clients import ClientChannel
from congreve.broker.group.members import Steps
from congreve.engine.config import StoreConfig
from congreve.remoting.loop.pieces import Pieces

from ..tool import local_config


def config_of(root: Path) -> BrokerConfig:
    store = StoreConfig(root_dir=str(root), max_hash_slot_num=1000, max_index_num=4000)
    return local_config(store=store)


async def test_connections_that_end_together_are_removed_in_several_turns(
    tmp_path: Path, connection: Any, turn: Any
) -> None:
    async with Broker(config_of(tmp_path)) as broker:
        managers = broker.managers
        members = [type(connection)(("127.0.0.1", number)) for number in range(500)]
        for member in members:
            managers.members.producers.register(
                "P", ClientChannel(member, str(member.peer), "JAVA", 401)
            )
        managers.members._pieces = Pieces(1, clock=itertools.count(step=0.1).__next__)
        for member in members:
            broker.managers.members.connection_closed(member)
        await turn()
        assert len(managers.members.producers.groups["P"]) >= 450, "ten steps a turn, five turns"
        while managers.members.producers.groups:
            await turn()


async def test_an_error_for_one_connection_does_not_keep_the_others(
    tmp_path: Path, connection: Any, turn: Any, caplog: Any, monkeypatch: Any
) -> None:
    async with Broker(config_of(tmp_path)) as broker:
        managers = broker.managers
        members = [type(connection)(("127.0.0.1", number)) for number in (7, 8)]
        for member in members:
            managers.members.producers.register(
                "P", ClientChannel(member, str(member.peer), "JAVA", 401)
            )

        def failing(_: Any) -> Steps:
            raise KeyError("G")
            yield

        monkeypatch.setattr(managers.members.consumers, "closing_steps", failing)
        for member in members:
            broker.managers.members.connection_closed(member)
        for _ in range(20):
            await turn()
        assert not managers.members.producers.groups
    assert [record.args for record in caplog.records if record.exc_info] == [
        ("127.0.0.1", 7),
        ("127.0.0.1", 8),
    ]
