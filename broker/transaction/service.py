"""Half messages and their ends, in the store (RocketMQ: TransactionalMessageServiceImpl).

A commit appends the record in the real topic and directly after it an op record. `window` has the
settled half messages, so that neither a second END_TRANSACTION nor one for an older copy delivers a
message again (D22).
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from congreve.base.clock import Clock
from congreve.broker.delay.parking import park
from congreve.broker.errors import RefusedError
from congreve.broker.metadata.offsets import NO_OFFSET, ConsumerOffsetManager
from congreve.broker.transaction.window import HalfWindow
from congreve.engine.results import PutResult, PutStatus
from congreve.engine.store import MessageStore
from congreve.records.message import half_messages
from congreve.records.message.message import Host, Record
from congreve.records.message.topics import (
    TRANS_GROUP,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    TRANS_QUEUE_ID,
)
from congreve.records.record import decode_record
from congreve.records.restore import COMMITTED, restored

logger = logging.getLogger(__name__)

MARKS_MAX = 1024


class _Mark(NamedTuple):
    """One moment: op records before `op_end` name half messages before `half_end`."""

    half_end: int
    op_end: int
    settled: int  # all half messages before it
    log_end: int  # physical


class TransactionService:
    """The transactions of one store (RocketMQ: TransactionalMessageServiceImpl).

    The event loop owns it, while lanes end half messages, too. A method that ends a half message
    claims it first, and returns None if it was ended already.
    """

    def __init__(
        self,
        store: MessageStore,
        offsets: ConsumerOffsetManager,
        clock: Clock,
        store_host: Callable[[], Host],
        present_queue: Callable[[str, int], int] = lambda topic, queue_id: queue_id,
    ) -> None:
        self.window = HalfWindow(store.log.lock)
        self._store = store
        self._offsets = offsets
        self._clock = clock
        self._store_host = store_host
        self._present_queue = present_queue
        self._newest: dict[str, int] = {}  # identity -> offset of the copy that counts
        self.asked: dict[int, int] = {}  # open half offset -> how often its producers were asked
        self._missing_op_records: deque[int] = deque()
        self._marks: deque[_Mark] = deque()

    # --- half messages

    def prepare(self, record: Record) -> PutResult:
        """Store a half message; the result's queue offset is the one in the half queue."""
        return self._store.put(half_messages.half_message(record))

    def find(self, physical_offset: int, *, repair: bool = True) -> Record | None:
        """The half message, or a copy of one, at a physical offset; None for any other record.

        For a damaged entry of the half queue it acts as MessageStore.place_of().
        """
        found = self._store.record_at(physical_offset, repair=repair)
        if found is None:
            return None
        record = decode_record(found, physical_offset=physical_offset)
        return record if record.topic == TRANS_HALF_TOPIC else None

    def half_at(self, offset: int, *, repair: bool = True) -> Record | None:
        """The half message at an offset of the half queue; None when it was deleted.

        For a damaged entry it acts as MessageStore.place_of().
        """
        queue = self._store.queues.get(TRANS_HALF_TOPIC, TRANS_QUEUE_ID)
        place = self._store.place_of(queue, offset, repair=repair)
        found = None if place is None else self._store.read(place)
        return None if found is None else decode_record(found, physical_offset=place)

    def open_offsets(self) -> list[int]:
        """The offsets of half messages that are still open, oldest first."""
        return self.window.open_offsets(self.end_of(TRANS_HALF_TOPIC))

    def end_of(self, topic: str) -> int:
        """The end of a queue of transactions, with what readers do not see yet."""
        queue = self._store.queues.find(topic, TRANS_QUEUE_ID)
        return 0 if queue is None else queue.max

    def open_offset(self, half: Record) -> int | None:
        """The offset at which this transaction is open: this half message or a later copy."""
        if not self.window.contains(half.queue_offset):
            return half.queue_offset
        return self._newest.get(half_messages.identity(half))

    # --- their ends

    @contextmanager
    def _claim(self, offset: int) -> Iterator[bool]:
        try:
            yield self.window.claim(offset)
        finally:
            self.window.release()

    def commit(self, half: Record, offset: int, *, when_asked: bool = False) -> PutResult | None:
        """Store the message in its real topic; `offset` is the result of open_offset().

        With `when_asked` (the producer answers a check) the message has the number of checks.
        """
        with self._claim(offset) as claimed:
            return self._commit(half, offset, when_asked) if claimed else None

    def _commit(self, half: Record, offset: int, when_asked: bool) -> PutResult:
        stored = self._store.read(half.physical_offset)
        if stored is None:
            return PutResult(PutStatus.UNKNOWN_ERROR)
        committed = restored(stored, COMMITTED)
        if when_asked and offset in self.asked:
            committed = half_messages.checked(committed, self.asked[offset])
        put = self._put_copy(self._parked(committed))
        if put.status is PutStatus.PUT_OK:
            return self._settle(half, offset) or put
        return put

    def queues_of(self, half: Record, *, commits: bool) -> list[tuple[str, int]]:
        """Topics and ids of the queues that get entries when the transaction ends."""
        queues = [(TRANS_OP_HALF_TOPIC, TRANS_QUEUE_ID)]
        stored = self._store.read(half.physical_offset)
        if commits and stored is not None:
            committed = self._parked(restored(stored, COMMITTED))
            queues.append((committed.topic, committed.queue_id))
        return queues

    def _parked(self, committed: Record) -> Record:
        """The committed message, parked if it has a delay that can be used.

        A delay is checked before the half message is stored, but its settings may have changed, and
        the topic may have fewer queues.
        """
        queue_id = self._present_queue(committed.topic, committed.queue_id)
        committed = msgspec.structs.replace(committed, queue_id=queue_id)
        try:
            return park(committed, self._store.config, self._clock.now())
        except RefusedError as error:
            logger.error("a committed message is delivered without its delay: %s", error)
            return committed

    def rollback(self, half: Record, offset: int) -> PutResult | None:
        """End the transaction without a message."""
        with self._claim(offset) as claimed:
            if not claimed:
                return None
            return self._settle(half, offset) or PutResult(PutStatus.PUT_OK)

    def give_up(self, half: Record, offset: int, check_times: int) -> PutResult | None:
        """Move a message that no producer ended to its own topic."""
        return self._replace(half, offset, half_messages.given_up(half, check_times))

    def put_back(self, half: Record, offset: int, check_times: int) -> PutResult | None:
        """Append a copy to the half queue, and settle the old half message."""
        put = self._replace(half, offset, half_messages.put_back(half, check_times))
        if put is not None and put.status is PutStatus.PUT_OK:
            self._newest[half_messages.identity(half)] = put.queue_offset
        return put

    def _replace(self, half: Record, offset: int, record: Record) -> PutResult | None:
        """Store a record in place of an open half message, and settle that one."""
        with self._claim(offset) as claimed:
            if not claimed:
                return None
            put = self._put_copy(record)
            if put.status is PutStatus.PUT_OK:
                self._settle(half, offset)
            return put

    def _put_copy(self, record: Record) -> PutResult:
        return self._store.put(half_messages.fitted(record), is_copy=True)

    def resume(self, given_up: Record) -> PutResult:
        """Store a given-up message as a half message again."""
        return self._store.put(half_messages.resumed(given_up))

    def settle_lost(self, offset: int) -> None:
        """Settle a half message whose record has expired; it needs no op record."""
        self.window.add(offset)

    def copy_counts(self, copy: Record) -> None:
        """Use this copy, which recovery found, for requests that name an older one."""
        self._newest[half_messages.identity(copy)] = copy.queue_offset

    def _settle(self, half: Record, offset: int) -> PutResult | None:
        """Settle a half message; the op record's result, None when the store fails."""
        name = half_messages.identity(half)
        if self._newest.get(name) == offset:
            del self._newest[name]
        self.window.add(offset)
        self._missing_op_records.append(offset)
        return self.write_missing_op_records()

    def write_missing_op_records(self) -> PutResult | None:
        """Write the missing op records; the last one's result, None when the store fails."""
        last = None
        while self._missing_op_records:
            half_offset = self._missing_op_records[0]
            op = half_messages.op_record(half_offset, self._store_host(), self._clock.now())
            last = self._store.put(op)
            if last.status is not PutStatus.PUT_OK:
                logger.error("op record of half message %d: %s", half_offset, last.status.name)
                return None
            self._missing_op_records.popleft()
        return last

    # --- progress

    def save_progress(self) -> None:
        """Commit the offsets of both queues from which the next start, or a Java broker, continues.

        They cover only records that are durable, and that no other log can replace. The next start
        reads op records from the last mark whose half messages are all settled.
        """
        self._mark()
        durable = min(self._store.backend.durable_offset, self._store.log.shown_end)
        settled = max((m.settled for m in self._marks if m.log_end <= durable), default=NO_OFFSET)
        self._advance(TRANS_HALF_TOPIC, settled)
        while self._marks:
            mark = self._marks[0]
            if mark.log_end > durable or mark.half_end > settled:
                break
            self._advance(TRANS_OP_HALF_TOPIC, mark.op_end)
            self._marks.popleft()

    def _mark(self) -> None:
        store = self._store
        with store.log.lock:
            mark = _Mark(
                half_end=self.end_of(TRANS_HALF_TOPIC),
                op_end=self.end_of(TRANS_OP_HALF_TOPIC),
                settled=self.window.base,
                log_end=store.log.max_offset,
            )
        if mark.half_end == 0 or self._missing_op_records:
            return
        if not self._marks or self._marks[-1][:3] != mark[:3]:
            self._marks.append(mark)
        if len(self._marks) > MARKS_MAX:
            self._marks = deque(list(self._marks)[::2])

    def _advance(self, topic: str, offset: int) -> None:
        if offset > self._offsets.query(TRANS_GROUP, topic, TRANS_QUEUE_ID):
            self._offsets.note(TRANS_GROUP, topic, TRANS_QUEUE_ID, offset)
