"""A loop on its own thread, while several threads use and stop it."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent import futures

import pytest

from congreve.remoting.errors import LoopThreadError
from congreve.remoting.loop import loop_thread
from congreve.remoting.loop.loop_thread import Lifecycle, LoopThread

LIMIT_S = 60
CANCELLED = asyncio.CancelledError | futures.CancelledError


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    made = LoopThread("tested")
    made.start()
    yield made
    made.stop()


def test_an_interrupt_of_the_start_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    thread, begin = LoopThread("tested"), threading.Thread.start

    def interrupted(started: threading.Thread) -> None:
        begin(started)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            thread.start()
    assert thread.has_ended
    assert "tested" not in {each.name for each in threading.enumerate()}


def test_a_loop_that_cannot_be_made_is_the_error_of_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails() -> asyncio.AbstractEventLoop:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(loop_thread, "new_event_loop", fails)
    thread = LoopThread("tested")
    with pytest.raises(OSError, match="Too many open files"):
        thread.start()
    assert thread.has_ended
    thread.stop()


def test_a_thread_that_never_started_is_finished() -> None:
    thread = LoopThread("tested")
    thread.finish(nothing)
    assert thread.has_ended


async def five() -> int:
    await asyncio.sleep(0)
    return 5


async def nothing() -> None:
    await asyncio.sleep(0)


def in_threads(count: int, work: Callable[[], object]) -> list[BaseException | None]:
    """What each of these threads raised; all have ended."""
    errors: list[BaseException | None] = []

    def run() -> None:
        try:
            work()
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - returned
            errors.append(error)
        else:
            errors.append(None)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(LIMIT_S)
    assert len(errors) == count
    return errors


def test_each_call_beside_the_end_has_a_result_or_an_error() -> None:
    for _ in range(20):
        thread, ended = LoopThread("tested"), threading.Event()
        thread.start()

        def use(thread: LoopThread = thread, ended: threading.Event = ended) -> None:
            while not ended.is_set():
                assert thread.run(five()) == 5
                assert thread.submit(five()).result(LIMIT_S) == 5
            thread.stop()
            thread.run(five())

        stopper = threading.Timer(0.005, lambda t=thread, e=ended: (t.stop(), e.set()))
        stopper.start()
        for error in in_threads(4, use):
            assert isinstance(error, LoopThreadError | CANCELLED), error
        stopper.join()


def test_several_threads_finish_it_once(thread: LoopThread) -> None:
    calls = []

    async def last() -> None:
        calls.append(1)
        await asyncio.sleep(0.05)

    assert in_threads(6, lambda: thread.finish(last)) == [None] * 6
    assert calls == [1]
    assert thread.has_ended


def test_a_callback_cannot_wait_for_its_own_thread(thread: LoopThread) -> None:
    async def callback() -> list[type[Exception]]:
        kinds: list[type[Exception]] = []
        for call in (lambda: thread.run(five()), lambda: thread.finish(nothing)):
            try:
                call()
            except LoopThreadError as error:
                kinds.append(type(error))
        return kinds

    assert thread.run(callback()) == [LoopThreadError] * 2
    assert thread.run(five()) == 5


def test_a_callback_that_exits_ends_no_loop(thread: LoopThread) -> None:
    def leave(_: object) -> None:
        raise SystemExit(3)

    thread.submit(five()).add_done_callback(leave)
    assert [thread.run(five()) for _ in range(3)] == [5] * 3


def test_what_runs_already_does_not_start_again() -> None:
    class Part(Lifecycle):
        async def start(self) -> None:
            await asyncio.sleep(0)

        async def stop(self) -> None:
            await asyncio.sleep(0)

    part = Part()
    with part, pytest.raises(LoopThreadError, match="this Part runs already"):
        part.__enter__()
    with part:
        pass
