"""Half messages and their ends, in the store (RocketMQ: TransactionalMessageServiceImpl).

A message is committed by its record in the real topic and an op record right behind it; nothing
comes between the two in the log. `window` knows which half messages are settled, so that none is
delivered twice: neither by a second END_TRANSACTION nor by one that names an older copy (D22).
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from congreve.broker import transaction
from congreve.broker.delay import park
from congreve.broker.offsets import NO_OFFSET, ConsumerOffsetManager
from congreve.broker.topics import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from congreve.broker.transaction import QUEUE_ID, TRANS_GROUP
from congreve.broker.transactionwindow import HalfWindow
from congreve.engine.clock import Clock
from congreve.engine.results import PutResult, PutStatus
from congreve.engine.store import MessageStore
from congreve.records.message import Host, Record
from congreve.records.record import decode_record
from congreve.records.restore import COMMITTED, restored

logger = logging.getLogger(__name__)

MARKS_MAX = 1024


class _Mark(NamedTuple):
    """One moment: op records before `op_end` speak of half messages before `half_end`."""

    half_end: int
    op_end: int
    settled: int  # all half messages before it
    log_end: int  # physical


class TransactionService:
    """What one store knows of its transactions. One thread calls it: the one that appends."""

    def __init__(
        self,
        store: MessageStore,
        offsets: ConsumerOffsetManager,
        clock: Clock,
        store_host: Callable[[], Host],
    ) -> None:
        self.window = HalfWindow()
        self._store = store
        self._offsets = offsets
        self._clock = clock
        self._store_host = store_host
        self._newest: dict[str, int] = {}  # identity -> offset of the copy that counts
        self._owed: deque[int] = deque()  # settled, but the op record could not be written
        self._marks: deque[_Mark] = deque()

    # --- half messages

    def prepare(self, record: Record) -> PutResult:
        """Store a half message; the answer's queue offset is that in the half queue."""
        return self._store.put(transaction.half_message(record))

    def find(self, physical_offset: int) -> Record | None:
        """The half message (or a copy of one) whose record begins there."""
        found = self._store.read(physical_offset)
        if found is None:
            return None
        record = decode_record(found, physical_offset=physical_offset)
        return record if record.topic == TRANS_HALF_TOPIC else None

    def half_at(self, offset: int) -> Record | None:
        """The half message at an offset of the half queue; None where it was deleted."""
        queue = self._store.queues.get(TRANS_HALF_TOPIC, QUEUE_ID)
        if not queue.min <= offset < queue.max:
            return None
        return self.find(queue[offset][0])

    def open_offsets(self) -> list[int]:
        """Half messages that nobody ended so far, oldest first."""
        return self.window.open_offsets(self._store.max_offset(TRANS_HALF_TOPIC, QUEUE_ID))

    def open_offset(self, half: Record) -> int | None:
        """Where the transaction of this half message stands open, itself or a later copy."""
        if not self.window.contains(half.queue_offset):
            return half.queue_offset
        return self._newest.get(transaction.identity(half))

    # --- their ends

    def commit(self, half: Record, offset: int) -> PutResult:
        """Store the message in its real topic; `offset` is what open_offset() said."""
        stored = self._store.read(half.physical_offset)
        if stored is None:
            return PutResult(PutStatus.UNKNOWN_ERROR)
        committed = restored(stored, COMMITTED)
        put = self._store.put(park(committed, self._store.config, self._clock.now()))
        if put.status is PutStatus.PUT_OK:
            return self._settle(half, offset) or put
        return put

    def rollback(self, half: Record, offset: int) -> PutResult:
        """End the transaction without a message."""
        return self._settle(half, offset) or PutResult(PutStatus.PUT_OK)

    def give_up(self, half: Record, offset: int, check_times: int) -> PutResult:
        """Keep the message aside: its producers did not end it."""
        put = self._store.put(transaction.given_up(half, check_times))
        if put.status is PutStatus.PUT_OK:
            self._settle(half, offset)
        return put

    def put_back(self, half: Record, offset: int, check_times: int) -> PutResult:
        """Go on with a copy at the end of the half queue, and settle the old one."""
        put = self._store.put(transaction.put_back(half, check_times))
        if put.status is PutStatus.PUT_OK:
            self._settle(half, offset)
            self._newest[transaction.identity(half)] = put.queue_offset
        return put

    def resume(self, given_up: Record) -> PutResult:
        """Make a half message of one that was given up."""
        return self._store.put(transaction.resumed(given_up))

    def settle_lost(self, offset: int) -> None:
        """A half message whose record is gone needs no op record."""
        self.window.add(offset)

    def copy_counts(self, copy: Record) -> None:
        """After a start: older names of this open transaction lead to this copy."""
        self._newest[transaction.identity(copy)] = copy.queue_offset

    def _settle(self, half: Record, offset: int) -> PutResult | None:
        """The op record's result; None where it has to wait for a store that takes it."""
        name = transaction.identity(half)
        if self._newest.get(name) == offset:
            del self._newest[name]
        self.window.add(offset)
        self._owed.append(offset)
        return self.pay_owed()

    def pay_owed(self) -> PutResult | None:
        """Write the op records that are missing; the last one's result."""
        last = None
        while self._owed:
            half_offset = self._owed[0]
            op = transaction.op_record(half_offset, self._store_host(), self._clock.now())
            last = self._store.put(op)
            if last.status is not PutStatus.PUT_OK:
                logger.error("op record of half message %d: %s", half_offset, last.status.name)
                return None
            self._owed.popleft()
        return last

    # --- how far they are ended

    def save_progress(self) -> None:
        """Commit the offsets of both queues from which a Java broker, or ours, would go on.

        Nothing is promised that is not on disk yet. Op records are read again from the last mark
        whose half messages are all settled: at least those that are still of interest.
        """
        self._mark()
        durable = self._store.backend.durable_offset
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
        mark = _Mark(
            half_end=store.max_offset(TRANS_HALF_TOPIC, QUEUE_ID),
            op_end=store.max_offset(TRANS_OP_HALF_TOPIC, QUEUE_ID),
            settled=self.window.base,
            log_end=store.log.max_offset,
        )
        if mark.half_end == 0 or self._owed:
            return
        if not self._marks or self._marks[-1][:3] != mark[:3]:
            self._marks.append(mark)
        if len(self._marks) > MARKS_MAX:
            self._marks = deque(list(self._marks)[::2])

    def _advance(self, topic: str, offset: int) -> None:
        if offset > self._offsets.query(TRANS_GROUP, topic, QUEUE_ID):
            self._offsets.commit(TRANS_GROUP, topic, QUEUE_ID, offset)
