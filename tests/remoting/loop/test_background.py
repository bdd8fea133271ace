"""Work that an unexpected error does not end."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator

import pytest

from congreve.remoting.loop.background import (
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    BackgroundJobs,
    BackgroundTask,
    stop_all,
    to_thread_whole,
)

logger = logging.getLogger("test-background")


class Work:
    """Raises each of `errors`, then waits until it is cancelled."""

    def __init__(self, *errors: BaseException) -> None:
        self._errors: Iterator[BaseException] = iter(errors)
        self.calls = 0
        self.waits = asyncio.Event()

    async def __call__(self) -> None:
        self.calls += 1
        for error in self._errors:
            raise error
        self.waits.set()
        await asyncio.Event().wait()


def pauses_of(*errors: BaseException) -> tuple[list[float], int]:
    pauses: list[float] = []

    async def note(seconds: float) -> None:
        pauses.append(seconds)

    async def main() -> int:
        work = Work(*errors)
        task = BackgroundTask("the work", work, logger, sleep=note)
        task.start()
        async with asyncio.timeout(10):
            await work.waits.wait()
            await task.stop()
        return work.calls

    return pauses, asyncio.run(main())


@pytest.mark.parametrize(
    "error", [KeyError("x"), UnicodeError("label"), AssertionError(), asyncio.CancelledError()]
)
def test_work_starts_again_after_an_error_with_one_line(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    pauses, calls = pauses_of(error)
    assert (pauses, calls) == ([FIRST_PAUSE_S], 2)
    [record] = caplog.records
    assert record.exc_info is not None and record.exc_info[1] is error
    assert record.getMessage() == "the work failed; it starts again in 0.5 s"


def test_the_pause_grows_to_a_limit() -> None:
    pauses, _ = pauses_of(*[ValueError(n) for n in range(10)])
    assert pauses[:4] == [0.5, 1, 2, 4]
    assert pauses[-1] == LONGEST_PAUSE_S


def test_work_that_returns_is_over(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        done = []

        async def work() -> None:
            done.append(1)

        task = BackgroundTask("the work", work, logger)
        task.start()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await task.stop()
        assert done == [1]

    asyncio.run(main())
    assert not caplog.records


def test_a_loop_that_ends_cancels_the_work() -> None:
    async def main() -> None:
        BackgroundTask("the work", Work(), logger).start()
        await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(main(), 10))  # asyncio.run waits for the tasks that it cancels


def test_all_stop_together_also_before_their_first_step() -> None:
    async def main() -> None:
        works = [Work() for _ in range(3)]
        tasks = [BackgroundTask("the work", work, logger) for work in works]
        for task in tasks:
            task.start()
        await stop_all(tasks)
        await stop_all(tasks)
        assert not any(work.waits.is_set() for work in works)

    asyncio.run(main())


def test_a_cancelled_call_in_a_thread_waits_for_the_thread() -> None:
    async def main() -> None:
        begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

        def work() -> None:
            begun.set()
            may_end.wait()
            ended.set()

        task = asyncio.create_task(to_thread_whole(work))
        await asyncio.to_thread(begun.wait)
        task.cancel()
        await asyncio.sleep(0.05)
        assert not task.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set()

    asyncio.run(asyncio.wait_for(main(), 10))


async def test_a_job_that_fails_is_said_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    done = []

    async def job(number: int) -> None:
        await asyncio.sleep(0)
        if number == 1:
            raise ValueError("a defect")
        done.append(number)

    jobs = BackgroundJobs("the job", logger)
    for number in range(3):
        jobs.begin(job(number))
    assert len(jobs) == 3
    await jobs.wait()
    await asyncio.sleep(0)
    assert done == [0, 2] and not jobs
    (record,) = caplog.records
    assert record.getMessage() == "the job failed" and record.exc_info is not None


async def test_jobs_that_are_cancelled_say_nothing(caplog: pytest.LogCaptureFixture) -> None:
    jobs = BackgroundJobs("the job", logger)
    jobs.begin(asyncio.sleep(600))
    await asyncio.sleep(0)
    jobs.cancel()
    await jobs.wait()
    assert not caplog.records
