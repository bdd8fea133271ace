"""Delayed messages are taken back, listed and counted (RocketMQ 5: RecallMessageProcessor)."""

import asyncio
from collections.abc import Generator, Iterator, Mapping
from itertools import chain

import numpy
from numpy import int64
from numpy.typing import NDArray

from congreve.broker.commit.group_commit import GroupCommit
from congreve.broker.config import BrokerConfig
from congreve.broker.delay.recalls import RECALLS_MAX, TIMED, Parked
from congreve.broker.delay.service import DelayedMessages
from congreve.broker.errors import RefusedError
from congreve.broker.requests.checks import region_fields
from congreve.engine.file_sizes import FILLER_SIZE
from congreve.engine.results import PutResult, PutStatus
from congreve.engine.store import MessageStore
from congreve.records.errors import RecordError
from congreve.records.message.message import Host, Record
from congreve.records.message.properties import KEYS, REAL_TOPIC, UNIQ_KEY
from congreve.records.message.recall_handle import RecallHandle
from congreve.records.message.topics import SCHEDULE_TOPIC, TIMER_QUEUE_ID, TIMER_TOPIC
from congreve.records.record import decode_record
from congreve.remoting.loop.pieces import Pieces
from congreve.remoting.messages.admin_bodies import DelayedCount, DelayedCounts, DelayedMessage
from congreve.remoting.messages.admin_bodies import DelayedMessages as DelayedMessageList
from congreve.remoting.messages.admin_headers import (
    DelayedMessagesRequestHeader,
    RecallMessageRequestHeader,
    RecallMessageResponseHeader,
)
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Handler

HOUR_MS = 3_600_000
STEP = 2_048  # queue entries between two turns of the event loop
ENTRIES_MAX = 2_000_000
"""Entries of one queue that an answer considers."""
LIST_MAX = 1_000
OF_ONE_TOPIC_MAX = 20_000
"""Messages of which an answer chooses those of one topic."""
KEY_MATCHES_MAX = 64
INDEXED_S = 10.0
"""How long a recall waits until the index of keys has its message."""
LOOK_S = 0.002
EVER_MS = (1 << 63) - 1


class DelayedMessageProcessor:
    """RECALL_MESSAGE, COUNT_DELAYED_MESSAGES and LIST_DELAYED_MESSAGES.

    (RocketMQ 5: RecallMessageProcessor.)
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        store: MessageStore,
        delayed: DelayedMessages,
        group_commit: GroupCommit,
        pieces: Pieces,
    ) -> None:
        self._config = config
        self._store = store
        self._delayed = delayed
        self._group_commit = group_commit
        self._pieces = pieces

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.RECALL_MESSAGE: self.recall,
            RequestCode.COUNT_DELAYED_MESSAGES: self.count,
            RequestCode.LIST_DELAYED_MESSAGES: self.list_next,
        }

    # --- recalls

    async def recall(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand | None:
        """Take a message back by its handle; the answer waits until that is on disk."""
        header = RecallMessageRequestHeader.read(request)
        try:
            handle = RecallHandle.decode(header.recall_handle)
        except RecordError as error:
            raise RefusedError(ResponseCode.ILLEGAL_OPERATION, str(error)) from error
        if handle.topic != header.topic:
            raise RefusedError(
                ResponseCode.ILLEGAL_OPERATION,
                f"recall failed, the handle is of topic {handle.topic}, not {header.topic}",
            )
        if handle.broker_name != self._config.broker_name:
            raise RefusedError(
                ResponseCode.ILLEGAL_OPERATION,
                f"recall failed, the message is on broker {handle.broker_name}",
            )
        put = await self.take_back(handle.topic, handle.message_id, connection.peer)
        fields = RecallMessageResponseHeader(msg_id=handle.message_id).fields()
        answer = request.reply(
            ResponseCode.SUCCESS, ext_fields=fields | region_fields(self._config)
        )
        return self._group_commit.answer(request, connection, answer, put.end)

    async def take_back(self, topic: str, message_id: str, host: Host) -> PutResult:
        """Take back the pending message of a topic with that id (UNIQ_KEY).

        Raises RefusedError if there is none, or the store refuses the record of it.
        """
        if self._config.is_slave:
            raise RefusedError(ResponseCode.SLAVE_NOT_AVAILABLE, "recall failed, this is a slave")
        if self._store.index is None:
            raise RefusedError(
                ResponseCode.ILLEGAL_OPERATION, "recall failed, messageIndexEnable is false"
            )
        if len(self._delayed.recalls) >= RECALLS_MAX:
            raise RefusedError(
                ResponseCode.SYSTEM_BUSY,
                f"recall failed, {RECALLS_MAX} recalled messages wait for their time",
            )
        await self._indexed()
        parked = await self._find(topic, message_id)
        if parked is None:
            raise RefusedError(
                ResponseCode.ILLEGAL_OPERATION,
                f"recall failed, topic {topic} has no delayed message {message_id}: it was"
                " delivered, taken back, or sent to another broker",
            )
        put = self._delayed.recalls.put(parked, topic, message_id, host)
        if put.status is not PutStatus.PUT_OK:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, put.refusal)
        return put

    async def _indexed(self) -> None:
        """Wait until the index has all messages that are in the log now."""
        index, end = self._store.index, self._store.log.max_offset
        assert index is not None
        deadline = asyncio.get_running_loop().time() + INDEXED_S
        while index.indexed_offset < end:
            if asyncio.get_running_loop().time() > deadline:
                raise RefusedError(
                    ResponseCode.SYSTEM_BUSY, "recall failed, the index of keys is behind"
                )
            index.wake()
            await asyncio.sleep(LOOK_S)

    async def _find(self, topic: str, message_id: str) -> Parked | None:
        for parked_topic in (TIMER_TOPIC, SCHEDULE_TOPIC):
            found = await self._pieces.run(
                self._store.query_steps(parked_topic, message_id, KEY_MATCHES_MAX, 0, EVER_MS)
            )
            for buffer in found.buffers:
                record = decode_record(buffer)
                properties = record.properties
                if properties.get(UNIQ_KEY) == message_id and properties.get(REAL_TOPIC) == topic:
                    parked = self._pending(record)
                    if parked is not None and parked not in self._delayed.recalls:
                        return parked
        return None

    def _pending(self, record: Record) -> Parked | None:
        """Where a parked record is; None if it was delivered."""
        queue = self._store.queues.find(record.topic, record.queue_id)
        if queue is None or not queue.min <= record.queue_offset < queue.max:
            return None
        place, _, wake = queue[record.queue_offset]
        if place != record.physical_offset:
            return None
        if record.topic == TIMER_TOPIC:
            index = self._delayed.timers.index
            at = record.queue_offset
            if index is None or not len(index.pending(at, at + 1)):
                return None
            return Parked(TIMED, place, wake)
        level = record.queue_id + 1
        if record.queue_offset < self._delayed.levels.offset_table.get(level, 0):
            return None
        return Parked(level, record.queue_offset, wake)

    # --- what is due when

    async def count(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """How many messages are due in each hour."""
        header = DelayedMessagesRequestHeader.read(request)
        body = await self._pieces.run(self._counts(header))
        return request.reply(ResponseCode.SUCCESS, body=body.encode())

    def _counts(self, header: DelayedMessagesRequestHeader) -> Generator[None, None, DelayedCounts]:
        counts: dict[tuple[int, int], int] = {}
        sizes: dict[int, int] = {}
        for level, _, due in self._due(header):
            sizes[level] = sizes.get(level, 0) + len(due)
            hours, numbers = numpy.unique(due // HOUR_MS, return_counts=True)
            for hour, number in zip(hours.tolist(), numbers.tolist(), strict=True):
                key = hour * HOUR_MS, level
                counts[key] = counts.get(key, 0) + number
            yield
        return DelayedCounts(
            counts=[DelayedCount(*key, number) for key, number in sorted(counts.items())],
            is_complete=all(size < ENTRIES_MAX for size in sizes.values()),
        )

    async def list_next(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """The messages that are due next, in the order of their times."""
        header = DelayedMessagesRequestHeader.read(request)
        body = await self._pieces.run(self._next(header))
        return request.reply(ResponseCode.SUCCESS, body=body.encode())

    def _next(
        self, header: DelayedMessagesRequestHeader
    ) -> Generator[None, None, DelayedMessageList]:
        wanted = min(max(header.count, 0), LIST_MAX)
        # Messages of other topics are left out only when their records are read.
        kept = wanted if header.topic is None else OF_ONE_TOPIC_MAX
        best = numpy.empty((0, 3), int64)
        for level, offsets, due in self._due(header):
            rows = numpy.stack([due, offsets, numpy.full(len(due), level)], axis=1)
            best = numpy.concatenate([best, rows])
            best = best[numpy.lexsort((best[:, 1], best[:, 0]))[:kept]]
            yield
        messages: list[DelayedMessage] = []
        for due_ms, offset, level in best.tolist():
            found = self._store.read(offset)
            if found is not None:
                message = self._describe(decode_record(found), due_ms, level)
                if header.topic is None or message.topic == header.topic:
                    messages.append(message)
            if len(messages) == wanted:
                break
            yield
        is_complete = len(messages) < wanted and len(best) < kept
        return DelayedMessageList(messages=messages, is_complete=is_complete)

    def _describe(self, record: Record, due_ms: int, level: int) -> DelayedMessage:
        topic = record.properties.get(REAL_TOPIC, "")
        message_id = record.properties.get(UNIQ_KEY, "")
        handle = RecallHandle(topic, self._config.broker_name, str(due_ms), message_id)
        return DelayedMessage(
            topic=topic,
            msg_id=message_id,
            keys=record.properties.get(KEYS, ""),
            due_ms=due_ms,
            level=level,
            store_timestamp=record.store_timestamp,
            physic_offset=record.physical_offset,
            body_size=len(record.body),
            recall_handle=handle.encode() if message_id else "",
        )

    def _due(
        self, header: DelayedMessagesRequestHeader
    ) -> Iterator[tuple[int, NDArray[int64], NDArray[int64]]]:
        """Level, physical offsets and due times of pending messages in the header's time."""
        for level, offsets, due in chain(self._levels(), self._timed()):
            inside = (due >= header.begin_ms) & (due < header.end_ms)
            yield level, offsets[inside], due[inside]

    def _levels(self) -> Iterator[tuple[int, NDArray[int64], NDArray[int64]]]:
        recalls = self._delayed.recalls
        for level in range(1, len(self._store.config.delay_levels_ms) + 1):
            queue = self._store.queues.find(SCHEDULE_TOPIC, level - 1)
            if queue is None:
                continue
            first = max(self._delayed.levels.offset_table.get(level, 0), queue.min)
            stop = min(self._store.log.end_of(queue), first + ENTRIES_MAX)
            for start in range(first, stop, STEP):
                entries = queue.entries(start, min(start + STEP, stop))
                wanted = entries["size"] != FILLER_SIZE
                recalled = recalls.next_recalled(level, start)
                while recalled is not None and recalled < start + len(entries):
                    wanted[recalled - start] = False
                    recalled = recalls.next_recalled(level, recalled + 1)
                yield (
                    level,
                    entries["physical_offset"][wanted].astype(int64),
                    entries["tags_code"][wanted].astype(int64),
                )

    def _timed(self) -> Iterator[tuple[int, NDArray[int64], NDArray[int64]]]:
        index = self._delayed.timers.index
        queue = self._store.queues.find(TIMER_TOPIC, TIMER_QUEUE_ID)
        if index is None or queue is None:
            return
        stop = self._store.log.end_of(queue)
        for start in range(max(queue.min, stop - ENTRIES_MAX), stop, STEP):
            rows = index.pending(start, min(start + STEP, stop))
            rows = rows[~numpy.isin(rows[:, 1], self._delayed.recalls.timed_offsets())]
            yield TIMED, rows[:, 1], rows[:, 2]
