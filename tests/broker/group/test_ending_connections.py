"""What a connection leaves behind is cleared away in pieces, however many end together."""

import itertools
from pathlib import Path
from typing import Any

from congreve.broker.broker import Broker
from congreve.broker.group.clients import ClientChannel
from congreve.engine.config import StoreConfig
from congreve.remoting.transport.pieces import Pieces

from ..tool import local_config


async def test_connections_that_end_together_are_forgotten_a_piece_a_turn(
    tmp_path: Path, connection: Any, turn: Any
) -> None:
    store = StoreConfig(root_dir=str(tmp_path), max_hash_slot_num=1000, max_index_num=4000)
    config = local_config(store=store)
    async with Broker(config) as broker:
        managers = broker.managers
        members = [type(connection)(("127.0.0.1", number)) for number in range(500)]
        for member in members:
            managers.producers.register("P", ClientChannel(member, str(member.peer), "JAVA", 401))
        managers.pieces = Pieces(1, clock=itertools.count(step=0.1).__next__)
        for member in members:
            broker._connection_closed(member)
        await turn()
        assert len(managers.producers.groups["P"]) >= 450, "ten steps a turn, five turns"
        while managers.producers.groups:
            await turn()
