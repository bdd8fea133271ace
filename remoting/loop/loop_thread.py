"""An event loop on a thread of its own, for programs that have no loop."""

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from congreve.remoting.errors import LoopThreadError, OtherProcessError, RemotingError

T = TypeVar("T")

logger = logging.getLogger(__name__)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class LoopThread:
    """A thread with an event loop that runs coroutines for other threads, from start() to stop().

    A child that fork() makes has no copy of the thread: there run() raises OtherProcessError, and
    stop() does nothing. A callback that calls sys.exit() ends no loop that others use.
    """

    def __init__(self, name: str) -> None:
        """It does nothing before start()."""
        self._pid = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._error: Exception | None = None
        self._begun = threading.Event()
        self._scheduling = threading.Lock()
        self._finishing = threading.Lock()
        self._is_stopping = self._has_ended = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread; an interrupt meanwhile leaves neither thread nor loop."""
        try:
            self._thread.start()
            self._begun.wait()
        except BaseException:
            self.stop()
            raise
        if self._error is not None:
            raise self._error

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine and return its result or raise its error.

        An interrupt (KeyboardInterrupt) cancels it, waits until it has cleaned up, and goes on; a
        second one does not wait. Raises LoopThreadError when the thread has ended, or is the
        caller's own, which would wait for itself.
        """
        ended = threading.Event()
        tasks: list[asyncio.Task[T]] = []

        def begin() -> None:
            tasks.append(asyncio.get_running_loop().create_task(coroutine))
            tasks[0].add_done_callback(lambda _: ended.set())

        def cancel() -> None:
            tasks[0].cancel()

        try:
            self._check_caller()
            self._schedule(begin)
        except RemotingError:
            coroutine.close()
            raise
        try:
            ended.wait()
        except BaseException:
            with suppress(LoopThreadError):
                self._schedule(cancel)
            ended.wait()
            raise
        return tasks[0].result()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run the coroutine; its result comes as a future. Raises LoopThreadError when the thread
        has ended."""
        try:
            self._check_process()
            with self._scheduling:
                return asyncio.run_coroutine_threadsafe(coroutine, self._living())
        except RemotingError:
            coroutine.close()
            raise

    def finish(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run the last coroutine, and stop the thread whatever comes of it.

        Another thread that calls this meanwhile waits, and has nothing left to do. In a child made
        by fork() nothing happens. Raises LoopThreadError in the thread itself.
        """
        if not self.is_of_this_process:
            return
        self._check_caller()
        with self._finishing:
            if self._loop is None:
                self.stop()
            elif not self._has_ended:
                try:
                    self.run(last())
                finally:
                    self.stop()

    def stop(self) -> None:
        """Stop the loop and the thread; idempotent."""
        if self.is_of_this_process:
            self._is_stopping = True  # a thread that has only begun ends by itself
            if self._loop is not None:
                with suppress(LoopThreadError):
                    self._schedule(self._loop.stop)
            if self._thread.ident is None:
                self._has_ended = True
            else:
                self._thread.join()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this thread."""
        return self._thread is threading.current_thread()

    @property
    def is_of_this_process(self) -> bool:
        """Whether this process made the thread, not the one that it was forked from."""
        return self._pid == os.getpid()

    @property
    def has_ended(self) -> bool:
        """Whether it runs nothing more."""
        return self._has_ended

    def _check_process(self) -> None:
        if not self.is_of_this_process:
            raise OtherProcessError(
                f"process {self._pid} started it: a child made by fork() must start its own"
            )

    def _check_caller(self) -> None:
        self._check_process()
        if self.is_current:
            raise LoopThreadError(
                f"a callback in thread {self._thread.name} cannot wait for that thread: make this"
                " call in another one"
            )

    def _schedule(self, callback: Callable[[], object]) -> None:
        """Let the loop call it: what it has accepted it calls before it ends."""
        with self._scheduling:
            self._living().call_soon_threadsafe(callback)

    def _living(self) -> asyncio.AbstractEventLoop:
        if self._loop is None or self._has_ended:
            raise LoopThreadError(f"thread {self._thread.name} has ended")
        return self._loop

    async def _end_all(self) -> None:
        """Cancel what still runs, and wait for it and for the threads that it has used."""
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await asyncio.get_running_loop().shutdown_default_executor()

    def _run(self) -> None:
        try:
            self._loop = loop = new_event_loop()
        except Exception as error:  # noqa: BLE001 - start() raises it
            self._error, self._has_ended = error, True
            return
        finally:
            self._begun.set()
        asyncio.set_event_loop(loop)
        try:
            while not self._is_stopping:
                try:
                    loop.run_forever()
                except (SystemExit, KeyboardInterrupt):
                    logger.exception("a callback wanted to exit thread %s", self._thread.name)
            with self._scheduling:
                self._has_ended = True
            loop.run_until_complete(self._end_all())
        finally:
            loop.close()


class Lifecycle:
    """start() and stop() as context managers.

    ``async with`` runs them on the caller's loop, ``with`` on a loop and thread of their own.
    """

    _thread: LoopThread | None = None
    _pid: int | None = None

    async def start(self) -> None:
        """Start; after a failure nothing is left running."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Stop; idempotent."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        self._pid = os.getpid()
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if os.getpid() == self._pid:  # a child made by fork() leaves all to its parent
            await self.stop()

    def __enter__(self) -> Self:
        if self._thread is not None and not self._thread.has_ended:
            raise LoopThreadError(f"this {type(self).__name__.strip('_')} runs already")
        self._thread = LoopThread(f"congreve-{type(self).__name__}")
        try:
            self._thread.start()
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
        if self._thread is not None:
            self._thread.finish(self.stop)
