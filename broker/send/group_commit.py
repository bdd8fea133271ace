"""Group commit: answers that wait until their messages are on disk (RocketMQ: GroupCommitService).

With SYNC_FLUSH encoded answers wait in the order of the log: one entry for each chunk of requests,
with the physical offset that it waits for. When the backend is durable up to X, all entries up to X
are sent together; there is no future or timer for each message.
"""

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from congreve.broker.metrics.put_times import PutTimes
from congreve.broker.send.commit_delay import CommitDelay
from congreve.broker.send.recode import recode
from congreve.broker.send.write_through import WriteThrough
from congreve.engine.config import StoreConfig
from congreve.engine.store import Backend
from congreve.remoting.messages.codes import ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.connection import Connection

logger = logging.getLogger(__name__)


class _Waiting(NamedTuple):
    upto: int
    deadline: float  # on the loop's clock
    connection: Connection
    answers: bytes
    begun_ns: int
    messages: int


class GroupCommit:
    """Delays answers until their messages are durable; one event loop owns it.

    RocketMQ: CommitLog.GroupCommitService. After syncFlushTimeout it answers FLUSH_DISK_TIMEOUT:
    stored, but not confirmed. After a failure of the backend it answers SERVICE_NOT_AVAILABLE.

    Where a lane listens to the backend, `waits(True)` asks the lane to call release() at each of
    its events, and `waits(False)` ends that.
    """

    def __init__(
        self,
        backend: Backend,
        config: StoreConfig,
        clock: Callable[[], float] = time.perf_counter,
        *,
        waits: Callable[[bool], None] | None = None,
    ) -> None:
        self.put_times = PutTimes()
        """How long sends took whose answers have waited here."""
        self._backend = backend
        self._config = config
        self._waits = waits
        self._timeout_s = config.sync_flush_timeout / 1000
        self._write_through = WriteThrough(backend, clock)
        self._delay = CommitDelay(lambda: bool(self._waiting), self._request_waiting, clock)
        self._waiting: deque[_Waiting] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """The number of waiting entries."""
        return len(self._waiting)

    def start(self) -> None:
        """Listen to the backend on the running loop."""
        self._loop = asyncio.get_running_loop()
        if self._waits is None:
            self._loop.add_reader(self._backend.event_fd, self._moved)
        self._delay.start(self._loop)

    def stop(self) -> None:
        """Stop listening; waiting answers are dropped with their connections."""
        if self._loop is None:
            return
        if self._waits is None:
            self._loop.remove_reader(self._backend.event_fd)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waiting.clear()
        self._delay.stop()
        self._write_through.stop()
        self._loop = None

    def answer(
        self, request: RemotingCommand, connection: Connection, answer: RemotingCommand, upto: int
    ) -> RemotingCommand | None:
        """The answer; None with SYNC_FLUSH, which sends it when `upto` is durable."""
        if not self._config.sync_flush or request.is_oneway or upto <= 0:
            return answer
        self.send_when_durable(connection, answer.encode(), upto, time.monotonic_ns(), 1)
        return None

    def send_when_durable(
        self,
        connection: Connection,
        answers: bytes,
        upto: int,
        begun_ns: int = 0,
        messages: int = 0,
    ) -> None:
        """Send `answers` (one or more response frames) when all bytes below `upto` are durable.

        Calls must be in the order of the log: `upto` never decreases. The answers are about
        `messages` messages that came at `begun_ns` of the monotonic clock.
        """
        assert self._loop is not None, "group commit was not started"
        if self._waits is not None:
            self._waits(True)
        failure = self._backend.failure_errno
        if failure:
            connection.write(_failed(answers, failure))
            return
        if upto <= self._backend.durable_offset or self._write_through.write(
            connection, upto, others_wait=bool(self._waiting)
        ):
            connection.write(answers)
            self.put_times.count(begun_ns, messages)
            return
        deadline = self._loop.time() + self._timeout_s
        self._waiting.append(_Waiting(upto, deadline, connection, answers, begun_ns, messages))
        if self._delay.is_over(connection):
            self._backend.request(upto)
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._expire)

    def _request_waiting(self) -> None:
        if self._waiting:
            self._backend.request(self._waiting[-1].upto)

    def release(self) -> None:
        """Send all due answers, after requesting the next write for the others."""
        self._request_waiting()
        durable = self._backend.durable_offset
        waiting = self._waiting
        due: dict[Connection, list[bytes]] = {}
        while waiting and waiting[0].upto <= durable:
            entry = waiting.popleft()
            due.setdefault(entry.connection, []).append(entry.answers)
            self.put_times.count(entry.begun_ns, entry.messages)
        if due:
            self._delay.begin(due)
        for connection, answers in due.items():
            if not connection.closed:
                connection.write(answers[0] if len(answers) == 1 else b"".join(answers))
        failure = self._backend.failure_errno
        if failure and waiting:
            logger.error("%d answers refused: %s", len(waiting), os.strerror(failure))
            while waiting:
                entry = waiting.popleft()
                if not entry.connection.closed:
                    entry.connection.write(_failed(entry.answers, failure))
        if self._waits is not None and not waiting:
            self._waits(False)

    def not_durable(self, answers: bytes, errno: int) -> bytes:
        """Answers of a lane whose messages are not confirmed: the disk failed, or (-1) is late."""
        return _failed(answers, errno) if errno > 0 else _timed_out(answers, self._timeout_s)

    def _moved(self) -> None:
        try:
            os.eventfd_read(self._backend.event_fd)
        except BlockingIOError:
            return
        self.release()

    def _expire(self) -> None:
        assert self._loop is not None
        self._timer = None
        self.release()
        now = self._loop.time()
        while self._waiting and self._waiting[0].deadline <= now:
            entry = self._waiting.popleft()
            if not entry.connection.closed:
                entry.connection.write(_timed_out(entry.answers, self._timeout_s))
        if self._waiting:
            self._timer = self._loop.call_at(self._waiting[0].deadline, self._expire)


def _failed(answers: bytes, errno: int) -> bytes:
    remark = f"the store failed to make the message durable: {os.strerror(errno)} (errno {errno})"
    return recode(answers, ResponseCode.SERVICE_NOT_AVAILABLE, remark)


def _timed_out(answers: bytes, timeout_s: float) -> bytes:
    remark = f"stored, but not confirmed to be on disk within {timeout_s:g} s"
    return recode(answers, ResponseCode.FLUSH_DISK_TIMEOUT, remark)
