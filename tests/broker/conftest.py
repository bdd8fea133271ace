"""Stand-ins for connections and the disk."""

import asyncio
import gc
import inspect
import os
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from typing import Any

import pytest

from congreve.broker.broker import Broker
from congreve.remoting.errors import RequestTimeoutError
from congreve.remoting.loop.watchdog import Watchdog
from congreve.remoting.messages.command import RemotingCommand

from .big_broker import BigBroker, big_broker

HELD_S = 0.05
#: Where a stack begins if the callback that held the loop has ended before the watchdog looked.
OVER = ("wait (threading.py", "select (selectors.py", "_beat (watchdog.py")


class FakeConnection:
    """Records what the broker wrote to one client."""

    def __init__(self, peer: tuple[str, int] = ("127.0.0.1", 40_000)) -> None:
        self.peer = peer
        self.peer_bytes = ip_address(peer[0]).packed + peer[1].to_bytes(4, "big")
        self.listener = ""
        self.speaks_http2 = False
        self.closed = False
        self.reading_paused = False
        self.reads = asyncio.Event()  # cleared while the client reads nothing
        self.reads.set()
        self.written: list[bytes] = []
        self.asked: list[RemotingCommand] = []
        self.answer: Callable[[RemotingCommand], RemotingCommand] | None = None

    def write(self, data: bytes) -> None:
        self.written.append(bytes(data))

    def send(self, command: RemotingCommand) -> None:
        self.write(command.encode())

    def oneway(self, command: RemotingCommand) -> None:
        self.asked.append(command)

    async def invoke(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        self.asked.append(command)
        assert self.answer is not None
        return self.answer(command)

    @property
    def is_writable(self) -> bool:
        return self.reads.is_set()

    async def wait_writable(self, timeout_s: float) -> None:
        try:
            await asyncio.wait_for(self.reads.wait(), timeout_s)
        except TimeoutError as error:
            raise RequestTimeoutError("nothing was read") from error

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.close()

    @property
    def answers(self) -> list[RemotingCommand]:
        """All answers so far, decoded."""
        stream = b"".join(self.written)
        found = []
        while stream:
            size = 4 + int.from_bytes(stream[:4], "big")
            found.append(RemotingCommand.decode(stream[:size]))
            stream = stream[size:]
        return found


class FakeBackend:
    """A disk whose bytes become durable when the test decides."""

    def __init__(self) -> None:
        self.event_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.durable_offset = 0
        self.failure_errno = 0
        self.requested: list[int] = []
        self.writes_through = False

    def write_through(self, upto: int) -> bool:
        if self.writes_through:
            self.durable_offset = upto
        return self.writes_through

    def request(self, upto: int) -> None:
        self.requested.append(upto)

    def becomes_durable(self, upto: int) -> None:
        self.durable_offset = upto
        os.eventfd_write(self.event_fd, 1)

    def fails(self, errno: int) -> None:
        self.failure_errno = errno
        os.eventfd_write(self.event_fd, 1)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run `async def` tests on a loop of their own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted}))
    return True


@pytest.fixture
def connection() -> FakeConnection:
    return FakeConnection()


@pytest.fixture
def another_connection() -> FakeConnection:
    return FakeConnection(("127.0.0.1", 40_001))


@pytest.fixture
def fake_backend() -> FakeBackend:
    return FakeBackend()


@pytest.fixture
def turn() -> Callable[[], object]:
    """Let the loop run the callbacks that are ready."""

    async def turns() -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    return turns


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BigBroker]:
    """A big broker for the tests of one module."""
    with big_broker(tmp_path_factory.mktemp("big")) as running:
        yield running


@pytest.fixture(autouse=True)
def watched_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a test whose broker blocks its event loop for HELD_S. The test's own work on the loop
    does not count, nor do garbage collections of objects that pytest keeps. On a busy machine the
    watchdog may sample the stack after the callback has ended and the loop is idle or runs the
    watchdog's own callback; the cause is unknown then and is ignored."""
    holds: list[str] = []
    made = Broker.__init__

    def report(seconds: float, stack: str) -> None:
        over = stack.startswith(OVER)
        if not over and f"({request.path.name}:" not in stack:
            holds.append(f"held for {seconds * 1000:.0f} ms by {stack}")

    def make(self: Broker, *args: Any, **options: Any) -> None:
        made(self, *args, **options)
        self._watchdog = Watchdog(HELD_S, report)

    monkeypatch.setattr(Broker, "__init__", make)
    gc.freeze()
    yield
    gc.unfreeze()
    assert not holds
