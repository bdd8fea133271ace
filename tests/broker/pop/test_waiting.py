"""Pops that wait: what they keep."""

from __future__ import annotations

from congreve.broker.config_parts import PopConfig
from congreve.broker.pop.waiting import WAITING_BYTES_MAX, WaitingPop, WaitingPops
from congreve.remoting.messages.command import RemotingCommand

KEY = ("g", "T")


def waiting(connection: object, request: RemotingCommand) -> WaitingPop:
    return WaitingPop(KEY, 0, request, connection, lambda: False, lambda: None)


async def test_a_waiting_pop_keeps_no_body_and_is_weighed(connection) -> None:
    request = RemotingCommand(code=200050, ext_fields={"x": "y" * 1000}, body=bytes(1 << 20))
    pop = waiting(connection, request)
    assert request.body == b""
    pops = WaitingPops(lambda key: ["T"], PopConfig())
    assert pops.add(pop, 60)
    large = RemotingCommand(code=200050, ext_fields={"x": "y" * WAITING_BYTES_MAX})
    assert not pops.add(waiting(connection, large), 60)
    pops.stop()
    assert len(pops) == 0
