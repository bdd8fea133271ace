"""Wake-ups, on the event loop of asyncio and on uvloop's, which differ in what they promise."""

import asyncio

import pytest
import uvloop

from congreve.broker.alarm import Alarm

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
LATER_S = 3600.0


@pytest.mark.parametrize("loop", list(LOOPS))
def test_an_earlier_wish_wins_and_a_later_one_changes_nothing(loop: str) -> None:
    rang = asyncio.Event()

    async def ring() -> None:
        alarm = Alarm(rang.set)
        for wishes in ((LATER_S, 0.0, LATER_S), (0.0, 0.0), (0.0, 0.001), (0.001, LATER_S)):
            for seconds in wishes:
                alarm.set(seconds)
            await asyncio.wait_for(rang.wait(), 10)
            assert not alarm.is_set
            rang.clear()
        alarm.set(LATER_S)
        alarm.stop()
        assert not alarm.is_set

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(ring())
