"""Requests of this end that wait for their answers (RocketMQ: ResponseFuture)."""

import asyncio

from congreve.remoting.errors import (
    ConnectionLostError,
    RequestTimeoutError,
    TooManyRequestsError,
)
from congreve.remoting.messages.command import RemotingCommand

SILENT_S = 0.1
"""A request that waits for less time says nothing about the connection."""

_Waiting = tuple[float, asyncio.Future[RemotingCommand], float, int]
"""A request's deadline and future, when it was sent, and how many answers had come by then."""


class PendingRequests:
    """The requests of one connection without an answer, by opaque (RocketMQ: responseTable).

    One timer ends all that wait too long. `peer` is the peer's name in errors.
    """

    __slots__ = (
        "_answers",
        "_expires_at",
        "_expiry",
        "_limit",
        "_loop",
        "_next_opaque",
        "_waiting",
        "is_silent",
        "peer",
    )

    def __init__(self, limit: int, loop: asyncio.AbstractEventLoop) -> None:
        self.peer = "unknown"
        self.is_silent = False
        """Whether a request timed out, and no answer at all has come since it was sent."""
        self._limit = limit
        self._loop = loop
        self._answers = 0
        self._waiting: dict[int, _Waiting] = {}
        self._expiry: asyncio.Handle | None = None
        self._expires_at = 0.0  # uvloop's handle of a timer that is due now has no time
        self._next_opaque = 0

    def number(self) -> int:
        """The opaque of the next request."""
        opaque = self._next_opaque
        self._next_opaque = (opaque + 1) & 0x7FFFFFFF
        return opaque

    def check_room(self) -> None:
        """Raises TooManyRequestsError if no further request may wait."""
        if len(self._waiting) >= self._limit:
            self._forget_cancelled()
        if len(self._waiting) >= self._limit:
            raise TooManyRequestsError(f"{self.peer}: {len(self._waiting)} requests without answer")

    def add(self, opaque: int, deadline: float) -> asyncio.Future[RemotingCommand]:
        """The future of a request's answer.

        It raises RequestTimeoutError when the loop's time passes `deadline`, and
        ConnectionLostError if the connection ends; it may be cancelled.
        """
        future: asyncio.Future[RemotingCommand] = self._loop.create_future()
        self._waiting[opaque] = (deadline, future, self._loop.time(), self._answers)
        if self._expiry is None or deadline < self._expires_at:
            self._expire_by(deadline)
        return future

    def answered(self, answer: RemotingCommand) -> None:
        """Pass an answer to the request that waits for it; drop it if there is none."""
        self._answers += 1
        self.is_silent = False
        waiting = self._waiting.pop(answer.opaque, None)
        if waiting is not None and not waiting[1].done():
            waiting[1].set_result(answer)

    def forget(self, opaque: int) -> None:
        """Drop a request whose caller no longer waits."""
        self._waiting.pop(opaque, None)

    def fail_all(self, reason: str) -> None:
        """Fail all requests with a ConnectionLostError; the connection has ended."""
        if self._expiry is not None:
            self._expiry.cancel()
        waiting, self._waiting = self._waiting, {}
        for _, future, _, _ in waiting.values():
            if not future.done():
                future.set_exception(ConnectionLostError(f"{self.peer}: {reason}"))

    def _forget_cancelled(self) -> None:
        for opaque, (_, future, _, _) in list(self._waiting.items()):
            if future.done():
                del self._waiting[opaque]

    def _expire_by(self, deadline: float) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        self._expires_at = deadline
        self._expiry = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        now = self._loop.time()
        for opaque, (deadline, future, sent_at, answers) in list(self._waiting.items()):
            if deadline <= now or future.done():
                del self._waiting[opaque]
                if not future.done():
                    future.set_exception(RequestTimeoutError(f"{self.peer}: no answer in time"))
                    if answers == self._answers and now - sent_at >= SILENT_S:
                        self.is_silent = True
        if self._waiting:
            self._expire_by(min(waiting[0] for waiting in self._waiting.values()))
