"""An event loop on a thread of its own, for programs that have no loop."""

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

from congreve.remoting.errors import OtherProcessError

T = TypeVar("T")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class LoopThread:
    """A thread with an event loop that runs coroutines for other threads, until stop().

    A child that fork() makes has no copy of the thread: there run() raises OtherProcessError, and
    stop() does nothing.
    """

    def __init__(self, name: str) -> None:
        self._pid = os.getpid()
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            self._thread.start()
        except BaseException:  # an interrupt, while the thread runs already
            if self._thread.is_alive():
                self.stop()
            raise

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine and return its result or raise its error.

        An interrupt (KeyboardInterrupt) cancels it, waits until it has cleaned up, and goes on; a
        second one does not wait.
        """
        self._check_process(coroutine)
        ended = threading.Event()
        tasks: list[asyncio.Task[T]] = []

        def begin() -> None:
            tasks.append(self._loop.create_task(coroutine))
            tasks[0].add_done_callback(lambda _: ended.set())

        def cancel() -> None:
            tasks[0].cancel()

        self._loop.call_soon_threadsafe(begin)
        try:
            ended.wait()
        except BaseException:
            self._loop.call_soon_threadsafe(cancel)
            ended.wait()
            raise
        return tasks[0].result()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run the coroutine; its result comes as a future."""
        self._check_process(coroutine)
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def stop(self) -> None:
        """Stop the loop and the thread."""
        if self.is_of_this_process:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this thread."""
        return self._thread is threading.current_thread()

    @property
    def is_of_this_process(self) -> bool:
        """Whether this process made the thread, not the one that it was forked from."""
        return self._pid == os.getpid()

    def _check_process(self, coroutine: Coroutine[Any, Any, T]) -> None:
        if not self.is_of_this_process:
            coroutine.close()
            raise OtherProcessError(
                f"process {self._pid} started it: a child made by fork() must start its own"
            )

    async def _end_all(self) -> None:
        """Cancel what still runs, and wait for it and for the threads that it has used."""
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self._loop.shutdown_default_executor()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._end_all())
        finally:
            self._loop.close()


class Lifecycle:
    """start() and stop() as context managers.

    ``async with`` runs them on the caller's loop, ``with`` on a loop and thread of their own.
    """

    _thread: LoopThread | None = None

    async def start(self) -> None:
        """Start; after a failure nothing is left running."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Stop; idempotent."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    def __enter__(self) -> Self:
        self._thread = LoopThread(f"congreve-{type(self).__name__}")
        try:
            self._thread.run(self.start())
        except BaseException as error:
            # An interrupt may come when start() has just ended.
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._thread is None:
            return
        try:
            if self._thread.is_of_this_process:
                self._thread.run(self.stop())
        finally:
            self._end_thread()

    def _end_thread(self) -> None:
        if self._thread is not None:
            self._thread.stop()
            self._thread = None
