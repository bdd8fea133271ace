"""Values that are refreshed, and jobs that run in the background."""

from __future__ import annotations

import asyncio

import pytest

from congreve.client.errors import ClientError
from congreve.console.web.jobs import RUNNING_MAX, Jobs
from congreve.console.web.refreshed import PAUSE_FACTOR, Refreshed


class Clock:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_callers_share_a_read_and_its_result() -> None:
    clock, reads = Clock(), []
    gate = asyncio.Event()

    async def read() -> int:
        await gate.wait()
        reads.append(1)
        return len(reads)

    value = Refreshed(read, 10.0, monotonic=clock)
    first, second = (asyncio.create_task(value.get()) for _ in range(2))
    await asyncio.sleep(0)
    gate.set()
    assert (await first, await second) == (1, 1)
    assert await value.get() == 1
    clock.now += 11
    assert await value.get() == 2
    value.forget()
    assert await value.get() == 3
    await value.stop()


async def test_an_old_value_is_returned_while_a_new_one_is_read() -> None:
    clock = Clock()
    numbers = iter(range(10))

    async def read() -> int:
        return next(numbers)

    value = Refreshed(read, 10.0, stale=100.0, monotonic=clock)
    assert value.peek() is None
    assert await value.get() == 0
    clock.now += 11
    assert await value.get() == 0
    await asyncio.sleep(0)
    assert value.peek() == 1
    clock.now += 200
    assert await value.get() == 2
    await value.stop()


async def test_slow_reads_are_repeated_less_often() -> None:
    clock, reads = Clock(), []

    async def read() -> int:
        reads.append(1)
        clock.now += 5
        return len(reads)

    value = Refreshed(read, 1.0, monotonic=clock)
    assert await value.get() == 1
    clock.now += 5 * PAUSE_FACTOR - 1
    assert await value.get() == 1
    clock.now += 2
    assert await value.get() == 2


async def test_a_partial_result_is_returned_before_the_read_ends() -> None:
    gate = asyncio.Event()

    async def read() -> str:
        value.offer("a part")
        await gate.wait()
        return "all"

    value = Refreshed(read, 10.0)
    assert await value.get() == "a part"
    gate.set()
    for _ in range(10):
        await asyncio.sleep(0)
    assert await value.get() == "all"


async def test_an_error_reaches_the_callers_and_the_read_is_repeated() -> None:
    answers = iter([ClientError("no"), 1])

    async def read() -> int:
        answer = next(answers)
        if isinstance(answer, ClientError):
            raise answer
        return answer

    value = Refreshed(read, 10.0)
    with pytest.raises(ClientError):
        await value.get()
    assert await value.get() == 1


# --- jobs


async def test_jobs_have_results_errors_and_a_limit() -> None:
    jobs = Jobs()
    gate = asyncio.Event()

    async def work(error: Exception | None = None) -> str:
        await gate.wait()
        if error is not None:
            raise error
        return "done"

    good, bad = jobs.start("good", work()), jobs.start("bad", work(ClientError("why")))
    for _ in range(RUNNING_MAX - 2):
        jobs.start("more", work())
    with pytest.raises(ClientError, match="jobs run already"):
        jobs.start("too many", work())
    assert good.result is None and not good.is_done
    gate.set()
    await asyncio.wait([good.task, bad.task])
    assert good.result == "done" and good.error is None
    assert bad.result is None and bad.error == "why"
    assert jobs.find(good.id) is good and jobs.find("x") is None
    waiting = jobs.start("waits", asyncio.sleep(1000))
    await jobs.stop()
    assert waiting.error == "It was cancelled."
