"""Work beside requests, supervised: loops, jobs, and calls in threads."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0


class BackgroundTask:
    """Runs `work` on the running loop, and again after an error that it did not expect.

    A loop that ends by such an error would leave the rest of the program running without it: a
    master that renews no lease, a slave that follows no one. The error goes to the log with its
    traceback, and `work` starts again after a pause, which doubles from half a second to half a
    minute, and is short again once `work` has run for longer than the last pause. A
    CancelledError without a cancel() is such an error, too: a library or a listener may raise
    it. When `work` returns, the task is over.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[], Coroutine[Any, Any, None]],
        logger: logging.Logger,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`name` says in the log what failed."""
        self._name = name
        self._work = work
        self._logger = logger
        self._sleep = sleep
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin. Call it on a running loop."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name=self._name)

    def cancel(self) -> None:
        """Begin to end the work; stop() waits for its end."""
        if self._task is not None:
            self._task.cancel()

    async def stop(self) -> None:
        """Cancel the work, and wait until it has ended; idempotent."""
        self.cancel()
        task, self._task = self._task, None
        if task is not None:
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        loop, pause = asyncio.get_running_loop(), FIRST_PAUSE_S
        this = asyncio.current_task()
        assert this is not None
        while True:
            begun = loop.time()
            try:
                await self._work()
            except (Exception, asyncio.CancelledError):
                if this.cancelling():
                    raise
                if loop.time() - begun > pause:
                    pause = FIRST_PAUSE_S
                self._logger.exception("%s failed; it starts again in %g s", self._name, pause)
            else:
                return
            await self._sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)


class BackgroundJobs:
    """Runs coroutines on the running loop, each once and in a task of its own.

    What a coroutine did not expect goes to the log with its traceback, and ends only that one.
    """

    def __init__(self, name: str, logger: logging.Logger) -> None:
        """`name` says in the log what failed."""
        self._name = name
        self._logger = logger
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """How many run."""
        return len(self._tasks)

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin one more. Call it on a running loop."""
        task = asyncio.get_running_loop().create_task(work, name=self._name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def cancel(self) -> None:
        """Begin to end all."""
        for task in self._tasks:
            task.cancel()

    async def wait(self) -> None:
        """Return when all that run now have ended."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._logger.error("%s failed", self._name, exc_info=error)


async def stop_all(tasks: list[BackgroundTask]) -> None:
    """Cancel all of them, then wait for all."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*(task.stop() for task in tasks))


async def to_thread_whole(work: Callable[[], T]) -> T:
    """asyncio.to_thread(), but a cancelled caller goes on only when the thread has ended.

    A thread does not notice a cancellation: what it opens after that would stay open.
    """
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
