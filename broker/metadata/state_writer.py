"""State files written off the event loop (RocketMQ: ConfigManager.persist).

A manager changes its table in memory; its StateWriter replaces the file on a thread. All changes
that come during a write are saved by one further write. A request whose answer depends on a change
waits for the write; when a write fails, the waiting requests fail, and the write is repeated.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from congreve.engine.errors import StoreError
from congreve.engine.state.state_file import StateFile
from congreve.remoting.loop.background import BackgroundTask
from congreve.remoting.messages import fastjson
from congreve.remoting.messages.body import Body

logger = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_FIRST_S, RETRY_MAX_S = 1.0, 30.0
"""Seconds from a failed write to the next one, unless a request waits."""
PAUSE_S = 0.05
"""The least time between a failed write and the next one, in seconds."""


class NotYetError(StoreError):
    """What a file would name may still be lost."""


class TableFile(Protocol):
    """The writer of one table's changes."""

    def changed(self) -> int:
        """Write soon; returns the change's number, 0 where changes are not numbered."""

    async def write(self) -> None:
        """Call changed(), and wait as saved() does."""

    async def saved(self) -> None:
        """Return when all changes so far are on disk. Raises StoreError when the write fails."""


class MemoryOnly:
    """The writer of a table without a file: every change counts as saved."""

    def changed(self) -> int:
        """Do nothing."""
        return 0

    async def write(self) -> None:
        """Do nothing."""

    async def saved(self) -> None:
        """Do nothing."""


class Changes(Generic[T]):
    """Changes of one table and the writes that make them durable; owned by one event loop.

    When a write begins, it calls `take` on the loop, and `write` with its result on a thread. It
    calls `saved` with the number up to which changes are on disk, after the waiting requests have
    continued.
    """

    def __init__(
        self,
        path: str,
        take: Callable[[], T],
        write: Callable[[T], None],
        saved: Callable[[int], None] = lambda number: None,
    ) -> None:
        self.path = path
        self.trouble: str | None = None
        """The reason why changes cannot be written, or None. To wait is none."""
        self.copied: Callable[[], Awaitable[None]] | None = None
        """Called after each write: returns when other brokers have the changes, too."""
        self._take = take
        self._write = write
        self._saved = saved
        self._newest = 0
        self._on_disk = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._wanted = asyncio.Event()
        self._writes = BackgroundTask(f"writing {path}", self._write_all, logger)
        self._at_work = False
        self._failure: str | None = None  # of the last write

    def changed(self) -> int:
        """Write soon; returns the change's number.

        Without a running loop (while the broker loads) the next change writes this one, too.
        """
        self._newest += 1
        self._start()
        return self._newest

    async def write(self) -> None:
        """Call changed(), and wait as saved() does."""
        self.changed()
        await self.saved()

    async def saved(self) -> None:
        """Return when all changes so far are on disk.

        Callers continue in the order of their calls. Raises StoreError if the write fails; the
        changes are written later.
        """
        if self._on_disk >= self._newest:
            await asyncio.sleep(0)  # callers that have waited longer continue first
            return
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((self._newest, future))
        self._start()
        self._wanted.set()
        await future

    async def finish(self) -> None:
        """Write the changes that are not on disk, and stop; a failure is logged."""
        try:
            await self.saved()
        except StoreError as error:
            level = logging.INFO if isinstance(error, NotYetError) else logging.ERROR
            logger.log(level, "not written before the stop: %s", error)
        await self._writes.stop()
        self._at_work = False

    def _start(self) -> None:
        if self._at_work:
            return
        try:
            self._writes.start()
        except RuntimeError:  # no loop runs yet
            return
        self._at_work = True

    async def _write_all(self) -> None:
        pause = RETRY_FIRST_S
        while self._on_disk < self._newest:
            number, last = self._newest, len(self._waiting)
            error = await self._write_once()
            if error is None:
                self._succeeded(number)
                pause = RETRY_FIRST_S
                continue
            self._failed(error, last)
            await asyncio.sleep(PAUSE_S)
            await self._wait_for_retry(pause)
            pause = min(2 * pause, RETRY_MAX_S)
        self._at_work = False

    async def _write_once(self) -> StoreError | None:
        try:
            await self._write_taken()
            if self.copied is not None:
                await self.copied()
        except StoreError as error:
            return error
        except Exception as error:  # even after a defect, no caller may wait forever
            logger.exception("%s", self.path)
            return StoreError(f"cannot write {self.path}: {type(error).__name__}: {error}")
        return None

    async def _write_taken(self) -> None:
        await asyncio.to_thread(self._write, self._take())

    async def _wait_for_retry(self, seconds: float) -> None:
        if not self._waiting:
            self._wanted.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._wanted.wait()
            except TimeoutError:
                pass

    def _succeeded(self, number: int) -> None:
        self._on_disk = number
        if self._failure is not None:
            logger.warning("writing %s succeeds again", self.path)
            self.trouble = self._failure = None
        while self._waiting and self._waiting[0][0] <= number:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
        asyncio.get_running_loop().call_soon(self._saved, number)

    def _failed(self, error: StoreError, count: int) -> None:
        """Fail the first `count` callers: those that waited when the write began."""
        if self._failure is None:
            level = logging.INFO if isinstance(error, NotYetError) else logging.ERROR
            logger.log(level, "%s; retrying until it succeeds", error)
        self._failure = str(error)
        if not isinstance(error, NotYetError):
            self.trouble = self._failure
        for _ in range(count):
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_exception(type(error)(str(error)))


class StateWriter(Changes[Body]):
    """Writes the snapshots that `take` returns (a body struct, not edited later) to one file.

    `ready` is called on the thread before the file is replaced; False keeps the old one for now.
    (RocketMQ: ConfigManager.persist.)
    """

    def __init__(
        self,
        file: StateFile,
        take: Callable[[], Body],
        ready: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__(file.path, take, self._replace)
        self._file = file
        self._ready = ready

    def _replace(self, snapshot: Body) -> None:
        if not self._ready():
            raise NotYetError(
                f"{self.path} is not written: the messages that it names are not on disk, or not"
                " confirmed"
            )
        self._file.replace_checked(
            fastjson.dumps_pretty(snapshot),
            lambda text: type(snapshot).from_tree(fastjson.loads(text)) == snapshot,
        )


class Unsaved:
    """Names whose last change is not on disk, with the change's number (Changes.changed)."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._numbers

    def note(self, name: str, number: int) -> None:
        """Record a change; number 0 means a table without a file, which is always saved."""
        if number:
            self._numbers[name] = number

    def forget(self, name: str) -> None:
        """Drop a name."""
        self._numbers.pop(name, None)

    def saved(self, number: int) -> list[str]:
        """Forget the names whose last change is on disk, and return them."""
        names = [name for name, change in self._numbers.items() if change <= number]
        for name in names:
            del self._numbers[name]
        return names
