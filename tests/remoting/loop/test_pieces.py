"""Long work on the loop: one piece in each turn, for any number of waiting requests."""

import asyncio
from collections.abc import Generator

import pytest

from congreve.remoting.loop.pieces import Pieces


class Work:
    """Work that takes time on a simulated clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pieces = Pieces(0.001, clock=lambda: self.now)

    def busy(self, seconds: float, fails: bool = False) -> Generator[None, None, str]:
        for _ in range(round(seconds / 0.0001)):
            self.now += 0.0001
            yield
        if fails:
            raise ValueError("no")
        return "done"


async def turns(ended: asyncio.Event) -> int:
    count = 0
    while not ended.is_set():
        count += 1
        await asyncio.sleep(0)
    return count


async def test_the_loop_gets_a_turn_after_each_piece_of_all_work_together() -> None:
    work = Work()
    ended = asyncio.Event()
    counted = asyncio.create_task(turns(ended))
    results = await asyncio.gather(*(work.pieces.run(work.busy(0.01)) for _ in range(10)))
    ended.set()
    assert results == ["done"] * 10
    assert await counted >= 50  # 100 pieces; 10 where each task has a piece in each turn


async def test_a_result_of_several_pieces_comes_in_a_turn_of_its_own() -> None:
    """The result may be a body of megabytes, which is sent next."""
    work = Work()
    ended: list[int] = []

    def noting() -> Generator[None, None, None]:
        yield from work.busy(0.0025)
        asyncio.get_running_loop().call_soon(ended.append, 1)

    await work.pieces.run(noting())
    assert ended == [1]


async def test_work_that_fails_does_not_stop_other_work() -> None:
    work = Work()
    failed, done = await asyncio.gather(
        work.pieces.run(work.busy(0.005, fails=True)),
        work.pieces.run(work.busy(0.005)),
        return_exceptions=True,
    )
    assert isinstance(failed, ValueError)
    assert done == "done"


async def test_cancelled_work_does_not_stop_other_work() -> None:
    work = Work()
    endless = asyncio.create_task(work.pieces.run(work.busy(60)))
    await asyncio.sleep(0)
    endless.cancel()
    assert await work.pieces.run(work.busy(0.005)) == "done"
    with pytest.raises(asyncio.CancelledError):
        await endless
