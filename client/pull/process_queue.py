"""Pulled messages of one queue that are not consumed yet (RocketMQ: ProcessQueue)."""

import asyncio
import time
from collections import deque
from collections.abc import Callable

import msgspec

from congreve.client.checks import check_number
from congreve.client.message import MessageQueue, ReceivedMessage
from congreve.client.received import PulledRecords

LOCK_VALID_S = 30.0
PULL_SILENT_S = 120.0
INT64_MAX = 2**63 - 1


class FlowLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on cached messages of a queue; None means no limit (RocketMQ: pullThresholdForQueue).

    Raises InvalidSettingError when a limit is not above 0.
    """

    count: int | None = 1000
    bytes: int | None = 100 * 1024 * 1024
    span: int | None = 2000
    """Maximum distance between the first and the last offset, so that one slow message cannot
    hold back any number."""
    topic_count: int | None = None
    topic_bytes: int | None = None
    """Limits for all queues of a topic together; each queue gets an equal part in place of the
    limits above (RocketMQ: pullThresholdForTopic, pullThresholdSizeForTopic)."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), 1, INT64_MAX)

    def shared_by(self, queues: int) -> "FlowLimits":
        """The limits of each of `queues` queues."""
        count, size = self.count, self.bytes
        if self.topic_count is not None:
            count = max(1, self.topic_count // max(1, queues))
        if self.topic_bytes is not None:
            size = max(1, self.topic_bytes // max(1, queues))
        return msgspec.structs.replace(self, count=count, bytes=size)


class ProcessQueue:
    """Pulled messages of one queue; the commit offset never passes a message that is not consumed
    (RocketMQ: ProcessQueue).

    An orderly listener holds `lock` while it works, and so does the task that releases the queue.
    """

    def __init__(
        self,
        queue: MessageQueue,
        offset: int,
        limits: FlowLimits | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monotonic = monotonic
        self.queue = queue
        self.next_offset = offset
        self.dropped = False
        self.paused = False
        self.locked_at: float | None = None
        self.lock = asyncio.Lock()
        self.pulled_at = self.consumed_at = time.time()
        self._pulled_at_monotonic = monotonic()
        self._limits = limits or FlowLimits()
        self._pulls: deque[PulledRecords] = deque()
        self._undone = self._bytes = 0
        self._not_full = asyncio.Event()
        self._not_full.set()

    def __len__(self) -> int:
        return self._undone

    @property
    def cached_bytes(self) -> int:
        """Bytes of the cached pulls."""
        return self._bytes

    @property
    def commit_offset(self) -> int:
        """The offset to commit: every message before it is consumed."""
        first = self._pulls[0].first_undone if self._pulls else None
        return self.next_offset if first is None else first

    @property
    def last_offset(self) -> int:
        """Offset of the last cached message, -1 when there is none."""
        return self._pulls[-1].offset_of(-1) if self._pulls else -1

    @property
    def locked(self) -> bool:
        """Whether this client holds the broker's lock on the queue."""
        return self.locked_at is not None and self._monotonic() - self.locked_at < LOCK_VALID_S

    @property
    def is_silent(self) -> bool:
        """Whether no pull has been answered for too long (RocketMQ: isPullExpired)."""
        return self._monotonic() - self._pulled_at_monotonic > PULL_SILENT_S

    def take(self, records: PulledRecords | None, next_offset: int) -> None:
        """Add the records of a pull and set the offset of the next one."""
        self.pulled_at = time.time()
        self._pulled_at_monotonic = self._monotonic()
        self.next_offset = next_offset
        if records is not None and len(records):
            records.owner = self
            self._pulls.append(records)
            self._undone += len(records)
            self._bytes += len(records.body)
            self._update_not_full()

    def done(self, message: ReceivedMessage) -> None:
        """Mark a message as consumed. Idempotent."""
        if message.source is not None and message.source.done(message):
            self._undone -= 1
            self._forget_finished()

    def done_all(self, messages: list[ReceivedMessage]) -> None:
        """Mark messages of one pull as consumed. Idempotent."""
        source = messages[0].source if messages else None
        if source is not None:
            self._undone -= source.done_all(messages)
            self._forget_finished()

    def done_pull(self, records: PulledRecords) -> None:
        """Mark all messages of a pull as consumed. Idempotent."""
        self._undone -= records.done_rest()
        self._forget_finished()

    def limit(self, limits: FlowLimits) -> None:
        """Change the limits."""
        self._limits = limits
        self._update_not_full()

    async def wait_until_not_full(self) -> None:
        """Wait until the limits allow another pull."""
        await self._not_full.wait()

    def pause(self, paused: bool) -> None:
        """Pause or resume pulling."""
        self.paused = paused
        self._update_not_full()

    def _forget_finished(self) -> None:
        while self._pulls and not self._pulls[0].undone:
            self._bytes -= len(self._pulls.popleft().body)
        self._update_not_full()

    def _update_not_full(self) -> None:
        if self.paused or self._is_full():
            self._not_full.clear()
        elif not self._not_full.is_set():
            self._not_full.set()

    def _is_full(self) -> bool:
        limits = self._limits
        if limits.count is not None and self._undone >= limits.count:
            return True
        if limits.bytes is not None and self._bytes >= limits.bytes:
            return True
        span = self.last_offset - self.commit_offset if self._pulls else 0
        return limits.span is not None and span >= limits.span
