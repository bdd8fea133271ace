"""Values that are refreshed, and jobs that run in the background."""

from __future__ import annotations

import asyncio

import pytest

import congreve
from congreve.client import AdminClient, Message, Producer, PullConsumer
from congreve.client.errors import ClientError
from congreve.console.web.cluster import SNAPSHOT_STALE_S, Cluster
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


async def test_after_a_pause_figures_are_those_of_now(node: congreve.Node) -> None:
    """Not the lag of the last visit, and not the mean rate since then."""
    clock = Clock()
    cluster = Cluster(node.address, None, monotonic=clock)
    async with (
        AdminClient(node.address) as admin,
        PullConsumer(node.address, group="pausing") as group,
        Producer(node.address, group="p") as producer,
    ):
        await admin.create_topic("pauses", queues=1)
        (queue,) = await group.queues("pauses")
        await producer.send(Message(topic="pauses", body=b"1"))
        await group.pull(queue, 0)
        await group.commit(queue, 1)
        await cluster.start()
        await cluster.statuses()
        before = await cluster.snapshot()
        assert before.groups["pausing"].lag == 0
        for _ in range(100):
            await producer.send(Message(topic="pauses", body=b"2"))
        clock.now += SNAPSHOT_STALE_S + 1
        while not (after := await cluster.snapshot()).has_lag:
            clock.now += SNAPSHOT_STALE_S + 1
        assert after.groups["pausing"].lag == 100
        (status,) = await cluster.statuses()
        average = [float(part) for part in status.figures["putTps"].split()]
        assert status.in_rate == average[0], "the broker's, of ten seconds"
        assert [sample.in_rate is None for sample in cluster.history] == [False, True, False]
        await cluster.stop()


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
