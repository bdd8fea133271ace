"""An event loop on a thread of its own, for programs that have no loop."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class LoopThread:
    """A thread with an event loop that runs coroutines for other threads, until stop()."""

    def __init__(self, name: str) -> None:
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine and return its result or raise its error; an interrupt cancels it."""
        future = self.submit(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run the coroutine; its result comes as a future."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def stop(self) -> None:
        """Stop the loop and the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
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
        except BaseException:
            self._end_thread()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._thread is not None:
            try:
                self._thread.run(self.stop())
            finally:
                self._end_thread()

    def _end_thread(self) -> None:
        if self._thread is not None:
            self._thread.stop()
            self._thread = None
