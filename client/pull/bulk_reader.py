"""Reads ranges of a queue as bodies of pulls, ahead of the caller and over a connection of its own.

It is for callers that convert whole bodies into columns (records.columns) and wait in a thread: it
has no event loop and creates no object per message. It reads a range in slices, several at a time,
because only the answer to a pull has the next offset; bodies are returned in the queue's order.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush
from io import BufferedReader
from typing import NamedTuple

from congreve.client.errors import BrokerError, ClientError
from congreve.client.message import MessageQueue, PullStatus
from congreve.records.filter.kinds import ALL, TAG
from congreve.remoting.errors import FrameError
from congreve.remoting.messages.codes import LanguageCode, RequestCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import PullMessageRequestHeader, PullMessageResponseHeader

PULL_SUBSCRIPTION = 4
RECEIVE_BYTES = 1 << 16
"""Answers up to this size may be copied twice; longer ones are received in place."""
BUFFERED_MAX = 64 << 20
"""Bytes that may be buffered after the first slice; beyond that only the first slice is read."""
RETRY_PAUSE_S = 0.2
STATUSES = frozenset(PullStatus)


class OffsetMovedError(ClientError):
    """The queue does not hold the offset; it holds [min_offset, max_offset)."""

    def __init__(self, queue: MessageQueue, offset: int, min_offset: int, max_offset: int) -> None:
        super().__init__(
            f"queue {queue.queue_id} of topic {queue.topic} on {queue.broker_name} has "
            f"offsets {min_offset} to {max_offset}, not {offset}"
        )
        self.min_offset = min_offset
        self.max_offset = max_offset


class Pulled(NamedTuple):
    """The body of a pull; only its messages in [start, stop) belong to the range."""

    body: bytes
    start: int
    stop: int


class _Slice:
    """A part of the range, read up to `offset`; `bodies` are buffered."""

    def __init__(self, start: int, stop: int) -> None:
        self.start = start
        self.offset = start
        self.stop = stop
        self.bodies: deque[bytes] = deque()


class BulkReader:
    """Reads one range of one queue from the broker at `address` (host:port), in one thread.

    `expression` is ``*``, tags separated by ``||``, or with `expression_type` SQL92 a filter; the
    broker compares only hashes of tags, so the caller must compare the tags. A lost connection is
    reopened for up to `retry_s` seconds.
    """

    def __init__(
        self,
        address: str,
        group: str,
        queue: MessageQueue,
        *,
        expression: str = ALL,
        expression_type: str = TAG,
        batch: int = 4096,
        in_flight: int = 8,
        timeout_s: float = 3.0,
        retry_s: float = 30.0,
    ) -> None:
        self._address = address
        self._queue = queue
        self._batch = batch
        self._in_flight = in_flight
        self._timeout_s = timeout_s
        self._retry_s = retry_s
        self._header = PullMessageRequestHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=0,
            max_msg_nums=batch,
            sys_flag=PULL_SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            sub_version=int(time.time() * 1000),
            subscription=expression,
            expression_type=expression_type,
        ).fields()
        self._slices: deque[_Slice] = deque()
        self._idle: list[tuple[int, _Slice]] = []  # a heap: the first slice is requested first
        self._waiting: dict[int, _Slice] = {}
        self._buffered = 0
        self._socket: socket.socket | None = None
        self._stream: BufferedReader | None = None
        self._opaque = 0

    def close(self) -> None:
        """Close the connection. Idempotent."""
        if self._socket is not None and self._stream is not None:
            self._stream.close()
            self._socket.close()
        self._socket = self._stream = None

    def bodies(self, start: int, stop: int) -> Iterator[Pulled]:
        """Yield all messages of [start, stop) that pass the broker's filter.

        Raises OffsetMovedError when the queue does not hold an offset, BrokerError when the broker
        refuses a pull, ClientError when the broker is unreachable for `retry_s` seconds.
        """
        self._slices = deque(
            _Slice(low, min(low + self._batch, stop)) for low in range(start, stop, self._batch)
        )
        self._buffered = 0
        self.close()
        deadline = time.monotonic() + self._retry_s
        while self._slices:
            try:
                self._step()
                deadline = time.monotonic() + self._retry_s
            except (OSError, FrameError, ValueError) as error:  # the address may be no address
                self.close()
                if time.monotonic() >= deadline:
                    raise ClientError(f"{self._address} cannot be read: {error}") from error
                time.sleep(RETRY_PAUSE_S)
            while self._slices:
                head = self._slices[0]
                while head.bodies:
                    body = head.bodies.popleft()
                    self._buffered -= len(body)
                    yield Pulled(body, head.start, head.stop)
                if head.offset < head.stop:
                    break
                self._slices.popleft()

    def _step(self) -> None:
        """Send the allowed requests once few are outstanding, then receive one answer."""
        if self._socket is None or self._stream is None:
            self._socket, self._stream = self._connect()
            self._idle = [(part.start, part) for part in self._slices if part.offset < part.stop]
        # Requests that are sent together cost less than one after each answer.
        if len(self._waiting) <= self._in_flight // 2:
            self._socket.sendall(b"".join(self._requests()))
        answer = RemotingCommand.read(self._stream)
        answered = self._waiting.pop(answer.opaque)
        self._take(answered, answer)
        if answered.offset < answered.stop:
            heappush(self._idle, (answered.start, answered))

    def _requests(self) -> Iterator[bytes]:
        while self._idle and len(self._waiting) < self._in_flight:
            if self._buffered > BUFFERED_MAX and self._idle[0][1] is not self._slices[0]:
                break
            yield self._request(heappop(self._idle)[1])

    def _request(self, part: _Slice) -> bytes:
        self._opaque += 1
        self._waiting[self._opaque] = part
        self._header["queueOffset"] = str(part.offset)
        self._header["maxMsgNums"] = str(min(self._batch, part.stop - part.offset))
        return RemotingCommand(
            code=RequestCode.PULL_MESSAGE,
            language=LanguageCode.PYTHON,
            opaque=self._opaque,
            ext_fields=self._header,
        ).encode()

    def _take(self, part: _Slice, answer: RemotingCommand) -> None:
        if answer.code not in STATUSES:
            raise BrokerError(answer.code, answer.remark, self._address)
        header = PullMessageResponseHeader.read(answer)
        # A gap in the queue is also answered with "no new message", and with the offset after it.
        continues = header.min_offset <= part.offset < header.next_begin_offset <= header.max_offset
        if answer.code in (PullStatus.OFFSET_ILLEGAL, PullStatus.NO_NEW_MSG) and not continues:
            raise OffsetMovedError(self._queue, part.offset, header.min_offset, header.max_offset)
        if answer.code == PullStatus.FOUND:
            part.bodies.append(answer.body)
            self._buffered += len(answer.body)
        part.offset = header.next_begin_offset

    def _connect(self) -> tuple[socket.socket, BufferedReader]:
        host, _, port = self._address.rpartition(":")
        connected = socket.create_connection((host.strip("[]"), int(port)), self._timeout_s)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._waiting.clear()
        return connected, BufferedReader(connected.makefile("rb", buffering=0), RECEIVE_BYTES)
