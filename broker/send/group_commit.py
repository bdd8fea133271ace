"""Answers that wait until what they promise is on disk (RocketMQ: GroupCommitService).

With SYNC_FLUSH encoded answers wait in the order of the log: one entry a chunk of requests, with
the physical offset that it waits for. When the backend says "durable up to X", all entries up to X
leave together; there is no future and no timer of a message's own.
"""

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from congreve.engine.store import Backend
from congreve.remoting.messages.codes import ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.connection import Connection

logger = logging.getLogger(__name__)

SENDS_ALONE = 16
"""In succession, each answered before the next, from one connection: then it counts as alone."""
STANDSTILL_S = 0.001
STANDSTILL_MEAN_OF = 8
SENDS_AFTER_STANDSTILL = 1000
"""A disk that held up the loop for longer than STANDSTILL_S, in the (moving) mean of some writes,
does not do so for that many sends."""
GATHER_S = 0.0003
"""A write waits so long, at most, for connections that were just answered and will send again.
Until they have, and for as long again until the disk is done, the loop does not sleep: to wake it
costs a virtual machine tens of microseconds, twice in each write."""
HURRIED_RELEASES_MAX = 128
"""Releases without such a wait after waits that nothing ended: one after the first, two after the
next in succession, and so on up to this number."""


class _Waiting(NamedTuple):
    upto: int
    deadline: float  # on the loop's clock
    connection: Connection
    answers: bytes


class GroupCommit:
    """Holds answers back until their messages are durable; owned by one event loop.

    After `timeout_s` seconds answers leave as FLUSH_DISK_TIMEOUT: stored, but not confirmed.
    When the backend has failed they leave as SERVICE_NOT_AVAILABLE.
    """

    def __init__(
        self,
        backend: Backend,
        timeout_s: float,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._backend = backend
        self._timeout_s = timeout_s
        self._clock = clock
        self._waiting: deque[_Waiting] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._sender: Connection | None = None
        self._sends_alone = 0
        self._standstill = 0.0
        self._awaited: set[Connection] = set()
        self._awake_until = 0.0
        self._turning = False
        self._hurried_releases = 0
        self._next_hurried = 1

    def __len__(self) -> int:
        """Entries that wait."""
        return len(self._waiting)

    def start(self) -> None:
        """Listen to the backend on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._backend.event_fd, self._moved)

    def stop(self) -> None:
        """Listen no more; answers that still wait are dropped with their connections."""
        if self._loop is None:
            return
        self._loop.remove_reader(self._backend.event_fd)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waiting.clear()
        self._awaited.clear()
        self._sender = None
        self._loop = None

    def send_when_durable(self, connection: Connection, answers: bytes, upto: int) -> None:
        """Send `answers` (one or more response frames) when all below `upto` is durable.

        Entries come in the order of the log: `upto` never goes back.
        """
        assert self._loop is not None, "group commit was not started"
        failure = self._backend.failure_errno
        if failure:
            connection.write(_failed(answers, failure))
            return
        if upto <= self._backend.durable_offset or self._written_alone(connection, upto):
            connection.write(answers)
            return
        deadline = self._loop.time() + self._timeout_s
        self._waiting.append(_Waiting(upto, deadline, connection, answers))
        if connection in self._awaited:
            self._awaited.remove(connection)
            if not self._awaited:
                self._awake_until = self._clock() + GATHER_S
                self._next_hurried = 1
        if not self._awaited:
            self._backend.request(upto)
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._expire)

    def _turn(self) -> None:
        """Stay awake; ask the disk when those who were just answered take too long to send again.

        The first of them would have a write to itself, and the others would wait for that one.
        """
        waits = self._awaited or self._waiting
        if self._loop is not None and waits and self._clock() < self._awake_until:
            self._loop.call_soon(self._turn)
            return
        self._turning = False
        if self._awaited:
            self._awaited.clear()
            self._hurried_releases = self._next_hurried
            self._next_hurried = min(2 * self._next_hurried, HURRIED_RELEASES_MAX)
            self._request_waiting()

    def _request_waiting(self) -> None:
        if self._waiting:
            self._backend.request(self._waiting[-1].upto)

    def _written_alone(self, connection: Connection, upto: int) -> bool:
        """Whether `upto` was made durable here, while the loop stood still.

        Only for a connection that was the only one to send for a while, and sends again when it
        has its answer: nobody else's send waits longer for it, and to sleep until the disk is done
        takes as long again as the disk.
        """
        if connection is not self._sender or self._waiting:
            self._sender, self._sends_alone = connection, 0
            return False
        self._sends_alone += 1
        if self._sends_alone < SENDS_ALONE:
            return False
        before = self._clock()
        done = self._backend.write_through(upto)
        self._standstill += (self._clock() - before - self._standstill) / STANDSTILL_MEAN_OF
        if self._standstill > STANDSTILL_S:
            self._standstill, self._sends_alone = 0.0, -SENDS_AFTER_STANDSTILL
        return done

    def release(self) -> None:
        """Send all answers that are due, after asking the disk for those that came since."""
        self._request_waiting()
        durable = self._backend.durable_offset
        waiting = self._waiting
        due: dict[Connection, list[bytes]] = {}
        while waiting and waiting[0].upto <= durable:
            entry = waiting.popleft()
            due.setdefault(entry.connection, []).append(entry.answers)
        if due:
            self._await_senders(due)
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

    def _await_senders(self, answered: Iterable[Connection]) -> None:
        if self._hurried_releases:
            self._hurried_releases -= 1
            return
        self._awaited = set(answered)
        self._awake_until = self._clock() + GATHER_S
        if not self._turning and self._loop is not None:
            self._turning = True
            self._loop.call_soon(self._turn)

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


def recode(answers: bytes, code: int, remark: str) -> bytes:
    """The same response frames with another code and remark; those that say no already stay."""
    out = []
    at = 0
    while at < len(answers):
        size = 4 + int.from_bytes(answers[at : at + 4], "big")
        frame = answers[at : at + size]
        command = RemotingCommand.decode(frame)
        if command.code == ResponseCode.SUCCESS:
            command.code = code
            command.remark = remark
            frame = command.encode()
        out.append(frame)
        at += size
    return b"".join(out)
