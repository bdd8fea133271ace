"""An asyncio client on a thread of its own, for the sync clients."""

from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from congreve.client.errors import ClientStateError
from congreve.client.instance import ClientInstance
from congreve.remoting import loopthread

C = TypeVar("C", bound=ClientInstance)
T = TypeVar("T")


class LoopThread(Generic[C]):
    """Runs one client for threads that wait for it, from start() to stop()."""

    def __init__(self, name: str, make: Callable[[], C]) -> None:
        self._name = name
        self._client = make()
        self._thread: loopthread.LoopThread | None = None

    @property
    def client(self) -> C:
        return self._client

    @property
    def is_running(self) -> bool:
        """Between start() and stop()."""
        return self._thread is not None

    def start(self) -> None:
        """Start the thread, then the client. Raises what the client raises."""
        self._thread = loopthread.LoopThread(f"congreve-{self._name}")
        try:
            self.run(self._client.start())
        except BaseException:
            self._end()
            raise

    def stop(self) -> None:
        """Stop the client, then the thread. Idempotent."""
        if self._thread is not None:
            try:
                self.run(self._client.stop())
            finally:
                self._end()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result; what it raises is raised here, an interrupt cancels it."""
        return self._running(coroutine).run(coroutine)

    def call(self, work: Callable[[], T]) -> T:
        """What plain code of the client gives, run in its loop; what it raises is raised here."""

        async def run() -> T:
            return work()

        return self.run(run())

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Have it run; its result comes as a future. Raises ClientStateError."""
        return self._running(coroutine).submit(coroutine)

    def _running(self, coroutine: Coroutine[Any, Any, T]) -> loopthread.LoopThread:
        if self._thread is None:
            coroutine.close()
            raise ClientStateError(f"the {self._name} is not running: use `with`")
        return self._thread

    def _end(self) -> None:
        thread, self._thread = self._thread, None
        assert thread is not None
        thread.stop()
