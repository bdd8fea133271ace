"""Runs an asyncio client in a thread of its own, for the sync clients."""

from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from congreve.client.errors import ClientStateError
from congreve.client.transport.instance import ClientInstance
from congreve.remoting.loop.loop_thread import LoopThread

C_co = TypeVar("C_co", bound=ClientInstance, covariant=True)
Part = TypeVar("Part")
Part_co = TypeVar("Part_co", covariant=True)
P = ParamSpec("P")
T = TypeVar("T")


class ClientThread(Generic[C_co]):
    """Runs one client in an event loop thread from start() to stop(); other threads wait for
    results."""

    def __init__(self, name: str, make: Callable[[], C_co]) -> None:
        self._name = name
        self._client = make()
        self._thread: LoopThread | None = None

    @property
    def client(self) -> C_co:
        """The asyncio client."""
        return self._client

    @property
    def is_running(self) -> bool:
        """Whether the thread runs: between start() and stop()."""
        return self._thread is not None and not self._thread.has_ended

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this thread."""
        return self._thread is not None and self._thread.is_current

    def start(self) -> None:
        """Start the thread, then the client. Raises what the client's start() raises, and
        ClientStateError when it was started before."""
        if self._thread is not None:
            self._client.check_process()
            raise ClientStateError(f"the {self._name} can be started only once")
        self._thread = LoopThread(f"congreve-{self._name}")
        try:
            self._thread.start()
            self.run(self._client.start())
        except BaseException:
            thread, self._thread = self._thread, None
            thread.stop()
            raise

    def stop(self) -> None:
        """Stop the client, then the thread; idempotent. In a child made by fork() both continue in
        the parent, and nothing happens. Raises ClientStateError in a callback."""
        if self._thread is not None:
            self._check_caller()
            self._thread.finish(self._client.stop)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine and return its result or raise its exception; an interrupt cancels
        it. Raises ClientStateError in a callback."""
        try:
            self._check_caller()
        except ClientStateError:
            coroutine.close()
            raise
        return self._running(coroutine).run(coroutine)

    def call(self, work: Callable[[], T]) -> T:
        """Run a plain function in the event loop and return its result or raise its exception."""

        async def run() -> T:
            return work()

        return self.run(run())

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start the coroutine and return a future. Raises ClientStateError when the thread is
        not running."""
        return self._running(coroutine).submit(coroutine)

    def _running(self, coroutine: Coroutine[Any, Any, T]) -> LoopThread:
        try:
            if self._thread is not None:
                self._client.check_process()
            if self._thread is None or self._thread.has_ended:
                raise ClientStateError(f"the {self._name} is not running: use `with`")
        except ClientStateError:
            coroutine.close()
            raise
        return self._thread

    def _check_caller(self) -> None:
        if self.is_current:
            raise ClientStateError(
                f"a callback runs in the thread of the {self._name}, which cannot wait for itself:"
                " make this call in another thread, or use send_soon()"
            )


class SyncPart(Generic[Part_co]):
    """A part of a client, or the client itself, whose methods run in the client's thread."""

    def __init__(self, thread: ClientThread[ClientInstance], part: Part_co) -> None:
        self._thread = thread
        self._part = part


class SyncClient(SyncPart[C_co]):
    """Base class of the sync clients: a client with an event loop in a thread of its own.

    ``with`` starts and stops it; any thread may call its methods.
    """

    def __init__(self, name: str, make: Callable[[], C_co]) -> None:
        thread = ClientThread(name, make)
        super().__init__(thread, thread.client)

    def start(self) -> None:
        """Start the thread and the client. Raises as the client's start() does."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the client and the thread. Idempotent."""
        self._thread.stop()

    def __enter__(self) -> Self:
        try:
            self.start()
        except Exception:
            raise
        except BaseException:  # an interrupt, which may come when start() has just ended
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def blocking(
    method: Callable[Concatenate[Part, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncPart[Part], P], T]:
    """The method of a sync part that runs a coroutine method of its part and waits for it.

    Arguments, result and errors are the coroutine's.
    """

    @wraps(method)
    def call(self: SyncPart[Part], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread.run(method(self._part, *args, **kwargs))

    return call


def in_loop(
    method: Callable[Concatenate[Part, P], T],
) -> Callable[Concatenate[SyncPart[Part], P], T]:
    """The method of a sync part that calls a plain method of its part in the event loop."""

    @wraps(method)
    def call(self: SyncPart[Part], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread.call(lambda: method(self._part, *args, **kwargs))

    return call
