"""Moves due messages, many at a time, from their parking topics to their real queues."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t
from libc.string cimport strlen

import logging
from collections.abc import Callable

from congreve.base.atomic cimport load_acquire
from congreve.base.clock cimport monotonic_ns
from congreve.base.cursor cimport load_i32, load_i64
from congreve.engine.format cimport CQ_AT_SIZE, CQ_AT_TAGS_CODE, CQ_ENTRY, CQ_FILLER_SIZE
from congreve.engine.log.commit_log cimport (
    APPEND_NEXT_SEGMENT, APPEND_OK, APPEND_QUEUE_ROOM, AppendStatus, CommitLog,
)
from congreve.engine.queue.consume_queue cimport ConsumeQueue
from congreve.engine.queue.queue_map cimport KnownQueue, QueueMap
from congreve.io_backends.mapping cimport Mapping
from congreve.records.byte_compare cimport is_text
from congreve.records.layout cimport PROPERTIES_MAX
from congreve.records.message.parked cimport level_due, timer_wake
from congreve.records.message.properties cimport TIMER_OUT_MS
from congreve.records.message.topics cimport (
    SCHEDULE_TOPIC, TRANS_HALF_TOPIC, UNDELIVERABLE_TOPIC,
)
from congreve.records.record cimport RECORD_OK, Message, check, encoded_size, property_of
from congreve.records.restore cimport (
    RESTORE_DELAYED, RESTORE_OK, RESTORE_TIMED, RestoreKind, decimal, restore,
)

from congreve.engine.queue.queue_map import is_topic
from congreve.io_backends.errors import BackendError

logger = logging.getLogger(__name__)

PresentQueue = Callable[[str, int], int]

# Limits of one run in bytes and, for reads from the disk, in time: the thread has other work.
cdef int64_t RUN_BYTES = 2 << 20
cdef int64_t RUN_NS = 10_000_000
# The append lock is held for a piece: this many bytes of records besides the last message.
cdef enum:
    PIECE_BYTES = 32 << 10


@cython.final
cdef class Redelivery:
    """Appends parked records to their real queues (RocketMQ: messageTimeup and putMessage).

    The appending thread calls it; a run holds the GIL only to open segments and queues. It skips
    records that it cannot read. A record without a target that can hold it goes to
    UNDELIVERABLE_TOPIC with the properties that it was parked with. A topic may have lost queues
    since: `present_queue` returns the queue id to deliver to, for a topic and the parked queue id.

    `lacks_file` says for a topic and queue id whether a message there would wait for a new file:
    then the run ends, and `fileless` names that queue.

    `roll_ms`: a timed message that is due later than this is written again by then.

    A run ends about `run_ns` ns after its start, even if due messages are left. It reads and checks
    a piece of some messages, then takes the append lock for the whole piece.
    """

    def __cinit__(self, CommitLog log, queues, *, int64_t roll_ms=0, int64_t run_ns=RUN_NS,
                  present_queue=None, lacks_file=None):
        self.log = log
        self.queues = queues
        self.present_queue = present_queue
        self.lacks_file = lacks_file
        self.roll_ms = roll_ms
        self.run_ns = run_ns
        self.known = QueueMap()
        self.buffer = <uint8_t *> PyMem_Malloc(PIECE_BYTES + PROPERTIES_MAX)
        if self.buffer == NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self.buffer)

    def deliver_level(self, ConsumeQueue queue, int64_t offset, int64_t limit, *,
                      int64_t now_ms, int64_t delay_ms, int64_t passes=INT64_MAX):
        """Deliver due entries of a level's queue in order from `offset`, at most `limit`.

        Returns the offset of the first entry that was not handled. An entry that is due later than
        `delay_ms` from now counts as due now, as in RocketMQ: the level table has changed.
        Damaged entries before offset `passes` (default: all) are skipped; another ends the run.
        """
        cdef int64_t per_file = queue.file_size // CQ_ENTRY
        cdef int64_t stop = min(load_acquire(&queue.max_offset), offset + limit)
        cdef int64_t file_stop
        cdef Mapping mapping
        cdef const uint8_t *entries
        cdef RedeliveryStop why = REDELIVER_NEXT
        self.begin(RESTORE_DELAYED, now_ms)
        self.at = offset
        self.level_id, self.passes = queue.queue_id, passes
        try:
            while self.at < stop and why != REDELIVER_DONE and not (self.damaged or self.fileless):
                mapping = queue.mapping_at(self.at // per_file * queue.file_size)
                if mapping is None:
                    self.at = min(queue.next_file_offset(self.at), stop)
                    continue
                file_stop = min(stop, (self.at // per_file + 1) * per_file)
                # The address that entry 0 of the queue would have.
                entries = mapping.data - self.at // per_file * queue.file_size
                with nogil:
                    why = self.walk(entries, file_stop, delay_ms)
                self.resume(why, load_i64(entries + self.at * CQ_ENTRY)
                            if why == REDELIVER_SOURCE else 0)
        except BackendError as error:
            self.fail(error)
        finally:
            self.source = None
        return self.at

    def deliver(self, offsets, *, int64_t now_ms):
        """Deliver the timed records at these physical offsets (native int64), in this order.

        Returns how many were handled. A record that is due only after `now_ms` (TIMER_OUT_MS) is
        appended to the timer queue again.
        """
        cdef Py_buffer view
        cdef const int64_t *data
        cdef int64_t stop
        cdef RedeliveryStop why = REDELIVER_NEXT
        self.begin(RESTORE_TIMED, now_ms)
        self.at = 0
        PyObject_GetBuffer(offsets, &view, PyBUF_SIMPLE)
        try:
            data = <const int64_t *> view.buf
            stop = view.len // 8
            while self.at < stop and why != REDELIVER_DONE and not self.fileless:
                with nogil:
                    why = self.walk(data, stop, 0)
                self.resume(why, data[self.at] if why == REDELIVER_SOURCE else 0)
        except BackendError as error:
            self.fail(error)
        finally:
            PyBuffer_Release(&view)
            self.source = None
        return self.at

    def arrived(self):
        """Watched queues that got a message in the last run."""
        return [queue for _, queue in self.known.queues if queue is not None and queue.watchers]

    # --- without the GIL

    # From `at` to `stop`, piece by piece: entries of a level's queue, or physical offsets of timed
    # records. All messages that it has read are in the log when it returns, except after
    # REDELIVER_SEGMENT and REDELIVER_QUEUE_ROOM.
    cdef RedeliveryStop walk(self, const void *entries, int64_t stop,
                             int64_t delay_ms) noexcept nogil:
        cdef RedeliveryStop why, appended
        cdef int64_t piece_stop
        while self.at < stop:
            piece_stop = min(stop, self.at + PIECE_MAX)
            if self.kind == RESTORE_TIMED:
                why = self.read_offsets(<const int64_t *> entries, piece_stop)
            else:
                why = self.read_entries(<const uint8_t *> entries, piece_stop, delay_ms)
            appended = self.append_piece()
            if appended != REDELIVER_NEXT or why != REDELIVER_NEXT:
                return why if appended == REDELIVER_NEXT else appended
            if self.enough():
                return REDELIVER_DONE
        return REDELIVER_NEXT

    cdef RedeliveryStop read_entries(self, const uint8_t *entries, int64_t stop,
                                     int64_t delay_ms) noexcept nogil:
        cdef RedeliveryStop why
        cdef const uint8_t *entry
        cdef int64_t due
        while self.at < stop and self.piece_bytes < PIECE_BYTES:
            entry = entries + self.at * CQ_ENTRY
            if load_i32(entry + CQ_AT_SIZE) == CQ_FILLER_SIZE:
                self.at += 1
                continue
            due = load_i64(entry + CQ_AT_TAGS_CODE)
            if due <= INT32_MAX:
                # A tag's hash: the reference rebuilt this queue after a crash (D5).
                why = self.read_parked(load_i64(entry))
                if why > REDELIVER_DONE:
                    return why
                due = (level_due(&delay_ms, 1, 1, self.parked.store_timestamp)
                       if why == REDELIVER_NEXT else 0)
            # Due too late for its level: the table of levels has changed.
            if self.now_ms < due <= self.now_ms + delay_ms:
                self.next_due = due
                return REDELIVER_DONE
            why = self.read(load_i64(entry))
            if why != REDELIVER_NEXT:
                return why
        return REDELIVER_NEXT

    cdef RedeliveryStop read_offsets(self, const int64_t *offsets, int64_t stop) noexcept nogil:
        cdef RedeliveryStop why
        while self.at < stop and self.piece_bytes < PIECE_BYTES:
            why = self.read(offsets[self.at])
            if why != REDELIVER_NEXT:
                return why
        return REDELIVER_NEXT

    cdef inline bint enough(self) noexcept nogil:
        return (
            load_acquire(&self.log.max_offset) >= self.byte_limit
            or monotonic_ns() >= self.time_limit
        )

    # The record at a physical offset into `parked`; DONE if there is no valid one.
    cdef RedeliveryStop read_parked(self, int64_t physical_offset) noexcept nogil:
        cdef int64_t at
        if self.source is None:
            return REDELIVER_SOURCE
        at = physical_offset - self.source.base_offset
        if not 0 <= at < self.source.size:
            return REDELIVER_SOURCE
        if check(self.source.data + at, self.source.published() - at, physical_offset, True,
                 &self.parked) != RECORD_OK:
            return REDELIVER_DONE
        return REDELIVER_NEXT

    # Adds the message of the entry `at` to `piece` or skips it, and goes on to the next entry.
    cdef RedeliveryStop read(self, int64_t physical_offset) noexcept nogil:
        cdef RedeliveryStop why = self.read_parked(physical_offset)
        if why == REDELIVER_SOURCE:
            return why
        self.next = &self.piece[self.count]
        self.next.undeliverable = False
        if why == REDELIVER_NEXT and self.kind == RESTORE_TIMED and self.rolls():
            return self.take()
        if self.kind == RESTORE_DELAYED and (why == REDELIVER_DONE or not self.is_parked_here()):
            if self.at >= self.passes:
                return REDELIVER_DAMAGED
            return self.skip()
        if why == REDELIVER_DONE:
            return self.skip()
        return self.take() if self.restored() else self.set_aside()

    cdef bint restored(self) noexcept nogil:
        return restore(&self.parked, self.kind, self.buffer + self.piece_bytes,
                       &self.next.message) == RESTORE_OK

    cdef RedeliveryStop skip(self) noexcept nogil:
        self.skipped += 1
        self.at += 1
        return REDELIVER_NEXT

    # Adds the record that was read to `piece`, for the topic of undeliverable messages.
    cdef RedeliveryStop set_aside(self) noexcept nogil:
        cdef Message *message = &self.next.message
        message.topic = <const uint8_t *> UNDELIVERABLE_TOPIC
        message.topic_length = <int32_t> strlen(UNDELIVERABLE_TOPIC)
        message.queue_id = 0
        message.properties = self.parked.properties
        message.properties_length = self.parked.properties_length
        self.next.undeliverable = True
        return self.take()

    # Whether the record is the one that this entry of the level refers to.
    cdef bint is_parked_here(self) noexcept nogil:
        return (
            self.parked.queue_offset == self.at and self.parked.queue_id == self.level_id
            and is_text(self.parked.topic, self.parked.topic_length, SCHEDULE_TOPIC)
        )

    # Whether a pending message is so old that it must be written again, before its segment expires.
    cdef bint rolls(self) noexcept nogil:
        cdef int32_t length = 0
        cdef const uint8_t *at = property_of(&self.parked, TIMER_OUT_MS, &length)
        cdef int64_t due = -1 if at == NULL else decimal(at, length)
        cdef Message *message = &self.next.message
        if due <= self.now_ms or not self.restored():
            return False
        message.topic = self.parked.topic
        message.topic_length = self.parked.topic_length
        message.queue_id = self.parked.queue_id
        message.properties = self.parked.properties
        message.properties_length = self.parked.properties_length
        message.tags_code = timer_wake(due, self.now_ms, self.roll_ms)
        return True

    # Finds the queue of the message that was read, and counts it as one of the piece.
    cdef RedeliveryStop take(self) noexcept nogil:
        cdef Message *message = &self.next.message
        cdef KnownQueue *known = self.known.find(
            message.topic, message.topic_length, message.queue_id)
        if known.topic == NULL:
            return REDELIVER_QUEUE
        if known.queue == NULL:
            return self.set_aside()
        self.next.queue = <void *> known.queue
        message.queue_id = (<ConsumeQueue> known.queue).queue_id
        self.next.entry = self.at
        self.piece_bytes += encoded_size(message)
        self.count += 1
        self.at += 1
        return REDELIVER_NEXT

    # Appends what is left of the piece.
    cdef RedeliveryStop append_piece(self) noexcept nogil:
        cdef AppendStatus status = APPEND_OK
        cdef RestoredMessage *one
        cdef int64_t now_ms
        if self.count == 0:
            return REDELIVER_NEXT
        self.log.lock.take()
        now_ms = self.log.clock.now_ms()
        while self.put < self.count:
            one = &self.piece[self.put]
            status = self.log.append(&one.message, <ConsumeQueue> one.queue, now_ms,
                                     &self.appended)
            if status == APPEND_NEXT_SEGMENT or status == APPEND_QUEUE_ROOM:
                break
            if status == APPEND_OK:
                self.end = self.appended.end
                if one.undeliverable:
                    self.undeliverable += 1
                else:
                    self.delivered += 1
            else:
                self.skipped += 1
            self.put += 1
        self.log.lock.drop()
        self.log.lock.let_others_in()
        if self.put < self.count:
            return REDELIVER_SEGMENT if status == APPEND_NEXT_SEGMENT else REDELIVER_QUEUE_ROOM
        self.put = self.count = 0
        self.piece_bytes = 0
        return REDELIVER_NEXT

    # --- with the GIL

    cdef int begin(self, RestoreKind kind, int64_t now_ms) except -1:
        self.known.clear()  # topics may have been deleted since
        self.kind = kind
        self.now_ms = now_ms
        self.byte_limit = load_acquire(&self.log.max_offset) + RUN_BYTES
        self.time_limit = monotonic_ns() + self.run_ns
        self.put = self.count = 0
        self.piece_bytes = 0
        self.delivered = self.skipped = self.undeliverable = 0
        self.end = self.next_due = 0
        self.passes, self.damaged = INT64_MAX, False
        self.fileless = None
        self.failure = None
        return 0

    cdef int resume(self, RedeliveryStop stop, int64_t physical_offset) except -1:
        """Do the step that needs the GIL, so that the walk can continue."""
        while stop == REDELIVER_SEGMENT or stop == REDELIVER_QUEUE_ROOM:
            with self.log.lock:
                if stop == REDELIVER_SEGMENT:
                    self.log.next_segment()
                else:
                    (<ConsumeQueue> self.piece[self.put].queue).make_room()
            with nogil:
                stop = self.append_piece()
        if stop == REDELIVER_SOURCE:
            self.source = self.log.segment_at(physical_offset)
            if self.source is None and self.at >= self.passes:
                self.damaged = True
            elif self.source is None:
                self.skip()
        elif stop == REDELIVER_DAMAGED:
            self.damaged = True
        elif stop == REDELIVER_QUEUE:
            self.find_queue()
        return 0

    cdef int fail(self, error) except -1:
        """The disk ended the run before what is left of the piece was appended."""
        self.failure = str(error)
        if self.put < self.count:
            self.at = self.piece[self.put].entry
        return 0

    cdef int find_queue(self) except -1:
        cdef Message *message = &self.next.message
        cdef bytes topic = message.topic[:message.topic_length]
        queue = None
        # A half message must not be delivered from a delay queue (the reference discards it, too).
        if is_topic(topic) and topic != TRANS_HALF_TOPIC:
            queue_id = message.queue_id
            if self.present_queue is not None:
                queue_id = self.present_queue(topic.decode(), queue_id)
            if self.lacks_file is not None and self.lacks_file(topic.decode(), queue_id):
                self.fileless = topic.decode(), queue_id
                return 0
            queue = self.queues.get(topic.decode(), queue_id)
        else:
            logger.error("the parked record at %d is for topic %r, which cannot hold it",
                         self.parked.physical_offset, topic)
        self.known.add(topic, message.queue_id, queue)
        return 0
