"""Wake-ups on the event loops of asyncio and of uvloop, which give different guarantees."""

import asyncio
import logging

import pytest
import uvloop

from congreve.remoting.loop.wake_up_timer import WakeUpTimer

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
LATER_S = 3600.0


@pytest.mark.parametrize("loop", list(LOOPS))
def test_an_earlier_time_replaces_a_later_one(loop: str) -> None:
    rang = asyncio.Event()

    async def ring() -> None:
        timer = WakeUpTimer(rang.set)
        for wishes in ((LATER_S, 0.0, LATER_S), (0.0, 0.0), (0.0, 0.001), (0.001, LATER_S)):
            for seconds in wishes:
                timer.set(seconds)
            await asyncio.wait_for(rang.wait(), 10)
            assert not timer.is_set
            rang.clear()
        timer.set(LATER_S)
        timer.stop()
        assert not timer.is_set

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(ring())


async def test_work_that_fails_is_called_again(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[float] = []
    done = asyncio.Event()

    def work() -> None:
        calls.append(asyncio.get_running_loop().time())
        if len(calls) == 1:
            raise RuntimeError("unexpected")
        done.set()

    timer = WakeUpTimer(work)
    with caplog.at_level(logging.ERROR):
        timer.set(0.0)
        await asyncio.wait_for(done.wait(), 10)
    assert not timer.is_set
    assert "work failed; it is called again in 0.5 s" in caplog.text
    assert "unexpected" in caplog.text
