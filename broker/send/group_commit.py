"""Group commit: answers that wait until their messages are on disk and at a slave.

With SYNC_FLUSH or SYNC_MASTER encoded answers wait in the order of the log: one entry for each
chunk of requests, with the physical offset that it waits for. When everything up to X is where it
must be, all entries up to X are sent together; there is no future or timer for each message.
(RocketMQ: GroupCommitService, GroupTransferService.)
"""

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from congreve.broker.figures.put_times import NO_REQUESTS, PutTimes, requests_of
from congreve.broker.send.commit_delay import CommitDelay
from congreve.broker.send.lane_commit import NO_SLAVE, SLAVE_LATE
from congreve.broker.send.recode import recode
from congreve.broker.send.write_through import WriteThrough
from congreve.engine.config import StoreConfig
from congreve.engine.replication.confirm_offset import ConfirmOffset
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
    appended_ns: int
    messages: int
    requests: Sequence[int]  # by kind (PutTimes)
    lacks_slave: bool  # no slave could be waited for: only the disk is


class GroupCommit:
    """Delays answers until their messages are durable; one event loop owns it.

    RocketMQ: CommitLog.GroupCommitService, GroupTransferService. After syncFlushTimeout it answers
    FLUSH_DISK_TIMEOUT: stored, but not confirmed. After a failure of the backend it answers
    SERVICE_NOT_AVAILABLE. If `confirm` waits for slaves, it answers FLUSH_SLAVE_TIMEOUT after
    `slave_timeout_s`, and SLAVE_NOT_AVAILABLE without a usable slave.

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
        confirm: ConfirmOffset | None = None,
        slave_timeout_s: float = 3.0,
    ) -> None:
        self.put_times = PutTimes()
        """How long requests took whose answers have waited here."""
        self._backend = backend
        self._config = config
        self._waits = waits
        self._slaves = confirm if confirm is not None and confirm.waits_for_slaves else None
        self.timeout_s = config.sync_flush_timeout / 1000
        if self._slaves is not None:
            self.timeout_s = slave_timeout_s
        """How long an answer waits."""
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
        """The answer; None with SYNC_FLUSH or SYNC_MASTER, which send it when `upto` is durable."""
        waits = self._config.sync_flush or self._slaves is not None
        if not waits or request.is_oneway or upto <= 0:
            return answer
        requests = requests_of(request.code)
        self.send_when_durable(connection, answer.encode(), upto, time.monotonic_ns(), 1, requests)
        return None

    def send_when_durable(
        self,
        connection: Connection,
        answers: bytes,
        upto: int,
        begun_ns: int = 0,
        messages: int = 0,
        requests: Sequence[int] = NO_REQUESTS,
    ) -> None:
        """Send `answers` (one or more response frames) when all bytes below `upto` are durable.

        Calls must be in the order of the log: `upto` never decreases. The answers are about
        `messages` messages and `requests`, by kind, which arrived at `begun_ns` of the monotonic
        clock.
        """
        assert self._loop is not None, "group commit was not started"
        if self._waits is not None:
            self._waits(True)
        failure = self._backend.failure_errno
        if failure:
            connection.write(_failed(answers, failure))
            return
        lacks_slave = self._slaves is not None and not self._slaves.may_wait(upto)
        deadline = self._loop.time() + self.timeout_s
        entry = _Waiting(
            upto,
            deadline,
            connection,
            answers,
            begun_ns,
            time.monotonic_ns(),
            messages,
            requests,
            lacks_slave,
        )
        if self._is_done(entry) or (self._written_alone(entry) and self._is_done(entry)):
            connection.write(_answers(entry))
            self._count(entry)
            return
        self._waiting.append(entry)
        if self._config.sync_flush and self._delay.is_over(connection):
            self._backend.request(upto)
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._expire)

    def _is_done(self, entry: _Waiting) -> bool:
        """Whether its messages are where they must be."""
        if self._config.sync_flush and entry.upto > self._backend.durable_offset:
            return False
        if self._slaves is None or entry.lacks_slave:
            return True
        return entry.upto <= self._slaves.confirmed_offset

    def _written_alone(self, entry: _Waiting) -> bool:
        """Let a lone sender's message be written here; returns whether it was."""
        return self._config.sync_flush and self._write_through.write(
            entry.connection, entry.upto, others_wait=bool(self._waiting)
        )

    def _count(self, entry: _Waiting) -> None:
        self.put_times.count(
            entry.begun_ns,
            entry.messages,
            entry.requests,
            appended_ns=entry.appended_ns,
            peer=entry.connection.peer_bytes,
        )

    def _request_waiting(self) -> None:
        if self._waiting and self._config.sync_flush:
            self._backend.request(self._waiting[-1].upto)

    def release(self) -> None:
        """Send all due answers, after requesting the next write for the others."""
        self._request_waiting()
        waiting = self._waiting
        due: dict[Connection, list[bytes]] = {}
        while waiting and self._is_done(waiting[0]):
            entry = waiting.popleft()
            due.setdefault(entry.connection, []).append(_answers(entry))
            self._count(entry)
        if due and self._config.sync_flush:
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
        """Answers of a lane that are not confirmed; `errno` is one, or a CommitFailure."""
        if errno > 0:
            return _failed(answers, errno)
        if errno == NO_SLAVE:
            return _without_slave(answers)
        return _timed_out(answers, self.timeout_s, at_slave=errno == SLAVE_LATE)

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
                on_disk = not self._config.sync_flush or entry.upto <= self._backend.durable_offset
                entry.connection.write(_timed_out(entry.answers, self.timeout_s, at_slave=on_disk))
        if self._waiting:
            self._timer = self._loop.call_at(self._waiting[0].deadline, self._expire)


def _failed(answers: bytes, errno: int) -> bytes:
    remark = f"the store failed to make the message durable: {os.strerror(errno)} (errno {errno})"
    return recode(answers, ResponseCode.SERVICE_NOT_AVAILABLE, remark)


def _timed_out(answers: bytes, timeout_s: float, *, at_slave: bool) -> bytes:
    where = "at a slave" if at_slave else "on disk"
    code = ResponseCode.FLUSH_SLAVE_TIMEOUT if at_slave else ResponseCode.FLUSH_DISK_TIMEOUT
    return recode(answers, code, f"stored, but not confirmed to be {where} within {timeout_s:g} s")


def _without_slave(answers: bytes) -> bytes:
    remark = "stored, but no slave is near enough to wait for it"
    return recode(answers, ResponseCode.SLAVE_NOT_AVAILABLE, remark)


def _answers(entry: _Waiting) -> bytes:
    return _without_slave(entry.answers) if entry.lacks_slave else entry.answers
