"""An event loop in a thread of its own, for the sync clients."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from congreve.client.errors import ClientStateError
from congreve.client.instance import ClientInstance

C = TypeVar("C", bound=ClientInstance)
T = TypeVar("T")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class LoopThread(Generic[C]):
    """Runs one client for threads that wait for it. `make` is called in the loop."""

    def __init__(self, name: str, make: Callable[[], C]) -> None:
        self._name = name
        self._client = make()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def client(self) -> C:
        return self._client

    def start(self) -> None:
        """Start the thread, then the client. Raises what the client raises."""
        self._loop = new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name=f"congreve-{self._name}", daemon=True
        )
        self._thread.start()
        try:
            self.run(self._client.start())
        except BaseException:
            self._end()
            raise

    def stop(self) -> None:
        """Stop the client, then the thread. Idempotent."""
        if self._loop is not None:
            try:
                self.run(self._client.stop())
            finally:
                self._end()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result; what it raises is raised here, an interrupt cancels it."""
        if self._loop is None:
            coroutine.close()
            raise ClientStateError(f"the {self._name} is not running: use `with`")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _end(self) -> None:
        loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        assert loop is not None
        assert thread is not None
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
