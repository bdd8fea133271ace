"""Due messages, many at a time: from where they were parked to where they belong."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

import logging

from congreve.engine.commitlog cimport (
    APPEND_NEXT_SEGMENT, APPEND_OK, APPEND_QUEUE_ROOM, AppendStatus, CommitLog,
)
from congreve.engine.consumequeue cimport ConsumeQueue
from congreve.engine.format cimport CQ_AT_SIZE, CQ_AT_TAGS_CODE, CQ_ENTRY, CQ_FILLER_SIZE
from congreve.engine.queuemap cimport KnownQueue, QueueMap
from congreve.io_backends.mapping cimport Mapping
from congreve.records.cursor cimport load_i32, load_i64
from congreve.records.layout cimport PROPERTIES_MAX
from congreve.records.record cimport RECORD_OK, check, find_property
from congreve.records.restore cimport (
    RESTORE_DELAYED, RESTORE_OK, RESTORE_TIMED, RestoreKind, decimal, restore,
)

from congreve.engine.queuemap import is_topic
from congreve.io_backends.errors import BackendError

LOG = logging.getLogger(__name__)

# One run appends at most so many bytes, and takes not much longer than so long where records
# must be read from the disk: others want their turn.
cdef int64_t RUN_BYTES = 2 << 20
cdef int64_t RUN_NS = 10_000_000
# A half message must not come out of a delay queue (the reference discards it, too).
cdef bytes HALF_TOPIC = b"RMQ_SYS_TRANS_HALF_TOPIC"


cdef inline int64_t monotonic_ns() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return <int64_t> t.tv_sec * 1_000_000_000 + t.tv_nsec


@cython.final
cdef class Redelivery:
    def __cinit__(self, CommitLog log, queues, *, int64_t roll_ms=0, int64_t run_ns=RUN_NS):
        self.log = log
        self.queues = queues
        self.roll_ms = roll_ms
        self.run_ns = run_ns
        self.known = QueueMap()
        self.room = <uint8_t *> PyMem_Malloc(PROPERTIES_MAX)
        if self.room == NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self.room)

    def deliver_level(self, ConsumeQueue queue, int64_t offset, int64_t limit, *,
                      int64_t now_ms, int64_t delay_ms):
        cdef int64_t per_file = queue.file_size // CQ_ENTRY
        cdef int64_t stop = min(queue.max_offset, offset + limit)
        cdef int64_t file_stop
        cdef Mapping mapping
        cdef const uint8_t *entries
        cdef RedeliveryStop why = REDELIVER_NEXT
        self.begin(RESTORE_DELAYED, now_ms)
        self.at = offset
        try:
            while self.at < stop and why != REDELIVER_DONE:
                mapping = queue.mapping_at(self.at // per_file * queue.file_size)
                if mapping is None:
                    self.at = min(queue.next_file_offset(self.at), stop)
                    continue
                file_stop = min(stop, (self.at // per_file + 1) * per_file)
                # Of entry 0 of the file, less what stands before it.
                entries = mapping.data - self.at // per_file * queue.file_size
                with nogil:
                    why = self.walk(entries, file_stop, delay_ms)
                self.resume(why, load_i64(entries + self.at * CQ_ENTRY)
                            if why > REDELIVER_DONE else 0)
        except BackendError as error:
            self.failure = str(error)
        finally:
            self.source = None
        return self.at

    def deliver(self, offsets, *, int64_t now_ms):
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
            while self.at < stop and why != REDELIVER_DONE:
                with nogil:
                    why = self.walk_offsets(data, stop)
                self.resume(why, data[self.at] if why > REDELIVER_DONE else 0)
        except BackendError as error:
            self.failure = str(error)
        finally:
            PyBuffer_Release(&view)
            self.source = None
        return self.at

    def arrived(self):
        return [queue for _, queue in self.known.kept if queue is not None and queue.watched]

    # --- without the GIL

    cdef RedeliveryStop walk(self, const uint8_t *entries, int64_t stop,
                             int64_t delay_ms) noexcept nogil:
        cdef RedeliveryStop why
        cdef const uint8_t *entry
        cdef int64_t due
        while self.at < stop:
            entry = entries + self.at * CQ_ENTRY
            if load_i32(entry + CQ_AT_SIZE) != CQ_FILLER_SIZE:
                due = load_i64(entry + CQ_AT_TAGS_CODE)
                if due <= INT32_MAX:
                    # A tag's hash: the reference rebuilt this queue after a crash (D5).
                    why = self.look(load_i64(entry))
                    if why > REDELIVER_DONE:
                        return why
                    due = self.parked.store_timestamp + delay_ms if why == REDELIVER_NEXT else 0
                # Due later than is possible: the table of levels has changed since.
                if self.now_ms < due <= self.now_ms + delay_ms:
                    self.next_due = due
                    return REDELIVER_DONE
                why = self.one(load_i64(entry))
                if why != REDELIVER_NEXT:
                    return why
            self.at += 1
            if self.enough():
                return REDELIVER_DONE
        return REDELIVER_NEXT

    cdef RedeliveryStop walk_offsets(self, const int64_t *offsets, int64_t stop) noexcept nogil:
        cdef RedeliveryStop why
        while self.at < stop:
            why = self.one(offsets[self.at])
            if why != REDELIVER_NEXT:
                return why
            self.at += 1
            if self.enough():
                return REDELIVER_DONE
        return REDELIVER_NEXT

    cdef inline bint enough(self) noexcept nogil:
        # A look at the clock costs as much as a tenth of a message.
        return self.log.max_offset >= self.byte_limit or (
            self.at % 16 == 0 and monotonic_ns() >= self.time_limit
        )

    # The record at a physical offset into `parked`; DONE where there is no sound one.
    cdef RedeliveryStop look(self, int64_t physical_offset) noexcept nogil:
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

    cdef RedeliveryStop one(self, int64_t physical_offset) noexcept nogil:
        cdef RedeliveryStop why = self.look(physical_offset)
        if why == REDELIVER_SOURCE:
            return why
        if why == REDELIVER_NEXT and self.kind == RESTORE_TIMED and self.rolls():
            return self.append()
        if why == REDELIVER_DONE or restore(&self.parked, self.kind, self.room,
                                            &self.message) != RESTORE_OK:
            self.skipped += 1
            return REDELIVER_NEXT
        return self.append()

    # A message that is not due yet, but so old that it must be written anew to outlive its segment.
    cdef bint rolls(self) noexcept nogil:
        cdef int32_t length = 0
        cdef const uint8_t *at = find_property(
            self.parked.properties, self.parked.properties_length, b"TIMER_OUT_MS", 12, &length)
        cdef int64_t due = -1 if at == NULL else decimal(at, length)
        if due <= self.now_ms or restore(&self.parked, self.kind, self.room,
                                         &self.message) != RESTORE_OK:
            return False
        self.message.topic = self.parked.topic
        self.message.topic_length = self.parked.topic_length
        self.message.queue_id = self.parked.queue_id
        self.message.properties = self.parked.properties
        self.message.properties_length = self.parked.properties_length
        self.message.tags_code = min(due, self.now_ms + self.roll_ms)
        return True

    cdef RedeliveryStop append(self) noexcept nogil:
        cdef AppendStatus status
        cdef KnownQueue *known = self.known.find(
            self.message.topic, self.message.topic_length, self.message.queue_id)
        if known.topic == NULL:
            return REDELIVER_QUEUE
        if known.queue == NULL:
            self.skipped += 1
            return REDELIVER_NEXT
        status = self.log.append(&self.message, <ConsumeQueue> known.queue,
                                 self.log.clock.now_ms(), &self.appended)
        if status == APPEND_NEXT_SEGMENT:
            return REDELIVER_SEGMENT
        if status == APPEND_QUEUE_ROOM:
            return REDELIVER_ROOM
        if status != APPEND_OK:
            self.skipped += 1
        else:
            self.end = self.appended.end
            self.delivered += 1
        return REDELIVER_NEXT

    # --- with it

    cdef int begin(self, RestoreKind kind, int64_t now_ms) except -1:
        self.known.clear()  # topics may have been deleted since
        self.kind = kind
        self.now_ms = now_ms
        self.byte_limit = self.log.max_offset + RUN_BYTES
        self.time_limit = monotonic_ns() + self.run_ns
        self.delivered = self.skipped = 0
        self.end = self.next_due = 0
        self.failure = None
        return 0

    cdef int resume(self, RedeliveryStop stop, int64_t physical_offset) except -1:
        """Do what compiled code could not, so that the walk can go on."""
        cdef KnownQueue *known
        if stop == REDELIVER_SOURCE:
            self.source = self.log.segment_at(physical_offset)
            if self.source is None:
                self.skipped += 1
                self.at += 1
        elif stop == REDELIVER_QUEUE:
            self.meet_queue()
        elif stop == REDELIVER_SEGMENT:
            self.log.next_segment()
        elif stop == REDELIVER_ROOM:
            known = self.known.find(self.message.topic, self.message.topic_length,
                                    self.message.queue_id)
            (<ConsumeQueue> known.queue).make_room()
        return 0

    cdef int meet_queue(self) except -1:
        cdef bytes topic = self.message.topic[:self.message.topic_length]
        queue = None
        if is_topic(topic) and topic != HALF_TOPIC:
            queue = self.queues.get(topic.decode(), self.message.queue_id)
        else:
            LOG.error("the parked record at %d is for topic %r: not delivered",
                      self.parked.physical_offset, topic)
        self.known.add(topic, self.message.queue_id, queue)
        return 0
