"""The share of the loop's time that peers get for long work."""

import asyncio
from collections.abc import Generator

import pytest

from congreve.remoting.loop.loop_time import LoopTime
from congreve.remoting.loop.pieces import BURST_S, COMMON_SHARE, SHARE, Pieces

STEP_S = 0.001


class Peer:
    pass


def test_a_bucket_has_a_burst_then_a_share() -> None:
    now = 0.0
    time = LoopTime(2.0, 0.1, lambda: now)
    time.spend(2.0)
    assert time.wait_s == 0
    time.spend(0.01)
    assert time.wait_s == pytest.approx(0.1)
    now += 0.1
    assert time.wait_s == pytest.approx(0, abs=1e-9)
    now += 100.0
    time.spend(2.0)
    assert time.wait_s == 0


class VirtualTime:
    """A clock that sleeps move, and steps of work."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self._sleep = asyncio.sleep
        monkeypatch.setattr(asyncio, "sleep", self._pass)
        self.pieces = Pieces(clock=lambda: self.now)

    async def _pass(self, seconds: float) -> None:
        self.now += seconds + 1e-9
        await self._sleep(0)

    def work(self, seconds: float) -> Generator[None, None, str]:
        for _ in range(round(seconds / STEP_S)):
            self.now += STEP_S
            yield
        return "done"

    async def took(self, seconds: float, peer: Peer | None) -> float:
        """How long so much work takes for this peer."""
        began = self.now
        assert await self.pieces.run(self.work(seconds), peer) == "done"
        return self.now - began


async def test_a_peer_that_has_taken_its_burst_gets_its_share_and_the_common_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    time, peer = VirtualTime(monkeypatch), Peer()
    assert await time.took(BURST_S, peer) == pytest.approx(BURST_S, rel=0.01)
    await time.took(2 * COMMON_SHARE, peer)  # takes what is left of both
    assert await time.took(1.0, peer) == pytest.approx(1 / (SHARE + COMMON_SHARE), rel=0.1)


async def test_other_peers_and_work_for_none_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    time, peer = VirtualTime(monkeypatch), Peer()
    await time.took(BURST_S + 1, peer)
    assert await time.took(BURST_S / 2, Peer()) == pytest.approx(BURST_S / 2, rel=0.01)
    assert await time.took(3.0, None) == pytest.approx(3.0, rel=0.01)


async def test_a_peer_that_rests_has_its_burst_again(monkeypatch: pytest.MonkeyPatch) -> None:
    time, peer = VirtualTime(monkeypatch), Peer()
    await time.took(BURST_S + 0.1, peer)
    time.now += 2 * BURST_S / SHARE
    assert await time.took(BURST_S, peer) == pytest.approx(BURST_S, rel=0.01)


async def test_the_shortest_piece_is_a_step() -> None:
    def steps(count: int) -> Generator[None, None, int]:
        for _ in range(count):
            yield
        return count

    pieces = Pieces(0.0)
    assert [await pieces.run(steps(count), Peer()) for count in (0, 3)] == [0, 3]


async def test_work_that_fails_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    time, peer = VirtualTime(monkeypatch), Peer()

    def failing() -> Generator[None, None, None]:
        time.now += 10.0
        yield
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        await time.pieces.run(failing(), peer)
    began = time.now
    await time.took(3 * COMMON_SHARE, peer)
    assert time.now - began > 3 * COMMON_SHARE
