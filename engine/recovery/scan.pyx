"""The scan of the log for recovery and verification: it checks and dispatches each record."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

import logging

from congreve.base.cursor cimport load_i32, load_i64
from congreve.engine.format cimport CQ_FILLER_SIZE
from congreve.engine.queue.consume_queue cimport ConsumeQueue
from congreve.engine.queue.queue_map cimport KnownQueue, QueueMap
from congreve.records cimport layout, record
from congreve.records.byte_compare cimport is_text
from congreve.records.message.properties cimport DELAY, TIMER_OUT_MS
from congreve.records.message.topics cimport TIMER_TOPIC
from congreve.records.record cimport RecordView
from congreve.records.restore cimport decimal

from congreve.engine.errors import StoreFormatError
from congreve.engine.queue.queue_map import is_delayed, is_topic
from congreve.records.message.parked import ParkingRule

logger = logging.getLogger(__name__)

LIMIT = STOP_LIMIT
BLANK = STOP_BLANK
END = STOP_END
BAD = STOP_BAD

# A parked message's due time is computed shortly before its store time.
cdef int64_t DUE_SLACK_MS = 1000


# True if the entry is in the queue afterwards; False if put() alone is not enough.
cdef inline bint put_in_order(ConsumeQueue queue, const RecordView *view,
                              int64_t tags_code) noexcept nogil:
    if view.physical_offset + view.size <= queue.max_physical:
        return True
    if view.queue_offset != queue.max_offset or queue.free_entries == 0:
        return False
    queue.put(view.physical_offset, view.size, tags_code)
    return True


@cython.final
cdef class LogScanner:
    """Scans the log record by record, without the GIL, and adds missing entries to consume queues.

    RocketMQ: CommitLog.checkMessageAndReturnSize with the build of DispatchRequests. Offsets are
    physical. The scan stops at the first bytes that are not a valid record; the caller decides how
    to continue.

    Without `queues` it only checks records. With `compare` it compares their queue entries, with
    `collect` it stores in `found` what the entries should be. `parking` holds the rules of parked
    messages' entries, the current one first; `compare` and agrees() accept an entry by any of them.

    Otherwise it appends missing entries: a queue that begins later gets filler, and it skips a
    record that its queue already has. It calls `report` with a sentence about each problem; the
    default logs it as a warning. `arrived` collects the queues with watchers that got entries.

    At the end of a file, properties that end in zeros are those of a torn record; not with `grows`,
    for a log whose next bytes are still to come.

    With `lags`, `compare` accepts that the last entries of a queue are missing: the next start of a
    store that was not stopped cleanly adds them.
    """

    def __init__(self, queues=None, *, bint verify_crc=True, bint compare=False,
                 bint collect=False, bint grows=False, bint lags=False, parking=(),
                 set arrived=None, report=logger.warning):
        self.queues, self.verify_crc, self.compare = queues, verify_crc, compare
        self.collect, self.grows, self.arrived = collect, grows, arrived
        self.lags = lags
        self.report = report
        self.known = QueueMap()
        self.missing, self.found = [], []
        self.parking = list(parking)
        self.last_record = -1

    def scan(self, segment, int64_t base_offset, int64_t start, end=None):
        """Scan one segment from the record at `start`, at most to `end`; returns why it stopped.

        LIMIT: at `end`, or the segment's last byte. BLANK: the rest of the segment is blank. END:
        zeros. BAD: no valid record, or one with an invalid topic or queue. `position` is that
        place. Raises BackendError if a queue cannot grow.
        """
        cdef int64_t limit
        cdef Stop stop
        cdef Py_buffer buffer
        PyObject_GetBuffer(segment, &buffer, PyBUF_SIMPLE)
        try:
            limit = base_offset + buffer.len
            if end is not None:
                limit = min(limit, end)
            with nogil:
                stop = self.scan_bytes(<const uint8_t *> buffer.buf, buffer.len, base_offset,
                                       start, limit)
            return <int> stop
        finally:
            PyBuffer_Release(&buffer)

    cdef Stop scan_bytes(self, const uint8_t *data, int64_t size, int64_t base_offset,
                         int64_t start, int64_t limit) except STOP_FAILED nogil:
        cdef bint dispatching = self.queues is not None
        cdef Stop stop
        self.data = data - base_offset
        self.segment_end = base_offset + size
        self.position = start
        while True:
            stop = self.walk(limit, dispatching)
            if stop < STOP_QUEUE_UNKNOWN:
                return stop
            if not self.resume(stop):
                return STOP_BAD

    cpdef int forget_queues(self) except -1:
        """Look queues up again at their next record."""
        return self.known.clear()

    cdef bint resume(self, Stop stop) except -1 with gil:
        """Do what the current record's queue needs; False for an invalid topic or queue."""
        if stop == STOP_QUEUE_UNKNOWN:
            return self.learn_queue()
        if stop == STOP_QUEUE_ASKS:
            self.settle()
        else:
            self.note_arrival()
        self.step()
        return True

    def pass_body(self, segment, int64_t base_offset, int64_t start):
        """Process the record at `start` although its body may have a wrong CRC; whether it did.

        It does nothing if another part of the record is damaged.
        """
        cdef bint verify_crc = self.verify_crc
        self.verify_crc = False
        try:
            self.scan(segment, base_offset, start, start + 1)
        finally:
            self.verify_crc = verify_crc
        return self.position > start

    def resync(self, segment, int64_t base_offset, int64_t start):
        """Offset of the first complete, valid record at or after `start` in this segment."""
        cdef int64_t found
        cdef Py_buffer buffer
        PyObject_GetBuffer(segment, &buffer, PyBUF_SIMPLE)
        self.data = <const uint8_t *> buffer.buf - base_offset
        self.segment_end = base_offset + buffer.len
        with nogil:
            found = self.next_record(start)
        PyBuffer_Release(&buffer)
        return None if found < 0 else found

    def claimed_size(self, data, int64_t most):
        """The size of the record or blank that these bytes begin with, as its own head says it.

        The least size of a record if that cannot be: it is none, or longer than `most`.
        """
        cdef Py_buffer buffer
        cdef int32_t size = 0
        cdef int32_t magic = 0
        PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
        if buffer.len >= layout.BLANK_MIN:
            size = load_i32(<const uint8_t *> buffer.buf)
            magic = load_i32(<const uint8_t *> buffer.buf + layout.AT_MAGIC)
        PyBuffer_Release(&buffer)
        if magic == layout.BLANK_MAGIC and layout.BLANK_MIN <= size <= most:
            return size
        if magic == layout.RECORD_MAGIC and layout.RECORD_FIXED <= size <= most:
            return size
        return layout.RECORD_FIXED

    cdef Stop walk(self, int64_t limit, bint dispatching) noexcept nogil:
        cdef record.RecordCheck found
        cdef KnownQueue *stream
        while self.position < limit:
            found = record.check(self.data + self.position, self.segment_end - self.position,
                                 self.position, self.verify_crc, &self.view)
            if found == record.RECORD_BLANK:
                return STOP_BLANK
            if found == record.RECORD_END:
                return STOP_END
            if found != record.RECORD_OK or (not self.grows and self.torn_behind_the_body()):
                return STOP_BAD
            if dispatching and not self.view.sys_flag & layout.SYS_TRANSACTION_PREPARED:
                stream = self.known.find(self.view.topic, self.view.topic_length,
                                         self.view.queue_id)
                if stream.topic == NULL:
                    return STOP_QUEUE_UNKNOWN
                if stream.queue != NULL and (
                    self.compare or self.collect or stream.delayed
                    or not put_in_order(<ConsumeQueue> stream.queue, &self.view, self.tags_code())
                ):
                    return STOP_QUEUE_ASKS
                self.dispatched += stream.queue != NULL
                if stream.queue != NULL and (<ConsumeQueue> stream.queue).watchers:
                    return STOP_QUEUE_WATCHED
            self.step()
        return STOP_LIMIT

    # No CRC covers the properties. If they end in zeros and nothing follows, they were torn.
    cdef bint torn_behind_the_body(self) noexcept nogil:
        cdef int64_t end = self.position + self.view.size
        cdef int32_t length = self.view.properties_length
        if length == 0 or self.view.properties[length - 1] != 0:
            return False
        return end + layout.BLANK_MIN > self.segment_end or load_i64(self.data + end) == 0

    cdef inline void step(self) noexcept nogil:
        self.records += 1
        self.last_record = self.position
        self.last_store_timestamp = self.view.store_timestamp
        self.position += self.view.size

    cdef inline int64_t tags_code(self) noexcept nogil:
        return record.tags_code(self.view.properties, self.view.properties_length)

    cdef bint learn_queue(self) except -1:
        # False for an invalid queue: then the header is damaged, which no CRC covers.
        cdef bytes topic = self.view.topic[:self.view.topic_length]
        cdef object queue
        if not is_topic(topic) or self.view.queue_id < 0:
            return False
        if self.compare:
            queue = self.queues.find(topic.decode(), self.view.queue_id)
        else:
            queue = self.queues.get(topic.decode(), self.view.queue_id)
        if queue is None:
            self.missing.append((topic.decode(), self.view.queue_id))
        self.known.add(topic, self.view.queue_id, queue)
        return True

    cdef note_arrival(self):
        cdef KnownQueue *stream
        if self.arrived is not None:
            stream = self.known.find(self.view.topic, self.view.topic_length, self.view.queue_id)
            self.arrived.add(<ConsumeQueue> stream.queue)
            self.has_arrived = True

    cdef settle(self):
        """Dispatch a record that is not simply the next entry of its queue."""
        cdef KnownQueue *stream = self.known.find(self.view.topic, self.view.topic_length,
                                                  self.view.queue_id)
        cdef ConsumeQueue queue = <ConsumeQueue> stream.queue
        cdef int64_t tags_code = self.tags_code()
        if stream.delayed:
            tags_code = self.deliver_time(tags_code)
        if self.collect:
            self.found.append((self.view.queue_offset, self.view.physical_offset, self.view.size,
                               tags_code))
        elif self.compare:
            self.compare_entry(queue, tags_code)
        elif self.view.physical_offset + self.view.size > queue.max_physical:
            self.dispatched += self.append(queue, tags_code)
            if queue.watchers:
                self.note_arrival()
        else:
            self.dispatched += 1

    cdef bint append(self, ConsumeQueue queue, int64_t tags_code) except -1:
        if self.view.queue_offset == 0 and queue.max_offset > 0:
            self.report(f"queue {queue.queue_id} of {queue.topic} begins again at {self.position}: "
                        "its topic was deleted before")
            queue.destroy()
        try:
            if queue.append(self.view.queue_offset, self.view.physical_offset, self.view.size,
                            tags_code):
                return True
            problem = f"queue {queue.queue_id} of {queue.topic} ends at {queue.max_offset}"
        except StoreFormatError as error:
            problem = str(error)
        self.report(f"skipping the record at {self.position} with queue offset "
                    f"{self.view.queue_offset}: {problem}")
        return False

    def agrees(self, segment, int64_t base_offset, ConsumeQueue queue, int64_t offset):
        """Whether the segment holds the record that this entry of `queue` describes."""
        cdef int64_t physical_offset = -1, tags_code = 0
        cdef int32_t size = 0
        cdef Py_buffer buffer
        cdef record.RecordCheck found
        if (
            not queue.entry(offset, &physical_offset, &size, &tags_code)
            or physical_offset < base_offset
        ):
            return False
        PyObject_GetBuffer(segment, &buffer, PyBUF_SIMPLE)
        try:
            self.position = physical_offset
            found = record.check(<const uint8_t *> buffer.buf + (physical_offset - base_offset),
                                 base_offset + buffer.len - physical_offset, physical_offset,
                                 self.verify_crc, &self.view)
            return (
                found == record.RECORD_OK and self.view.size == size
                and self.view.queue_offset == offset and self.view.queue_id == queue.queue_id
                and self.view.topic[:self.view.topic_length] == queue.topic.encode()
                and self.may_have(queue.topic.encode(), tags_code)
            )
        finally:
            PyBuffer_Release(&buffer)

    cdef bint may_have(self, bytes topic, int64_t tags_code) except -1:
        """Whether a record's entry may have this tags code, by the rules of any time."""
        cdef int64_t expected = self.tags_code()
        if not is_delayed(topic):
            return tags_code == expected
        for rule in self.parking or [None]:
            if -DUE_SLACK_MS <= tags_code - self.deliver_time(expected, rule) <= DUE_SLACK_MS:
                return True
        return False

    cdef compare_entry(self, ConsumeQueue queue, int64_t tags_code):
        cdef int64_t physical_offset = -1, found_tags_code = 0
        cdef int32_t size = 0
        if (
            queue.entry(queue.min_offset, &physical_offset, &size, &found_tags_code)
            and size != CQ_FILLER_SIZE and self.position < physical_offset
        ):
            return  # a record of a deleted queue of this name
        if self.lags and self.view.queue_offset >= queue.max_offset:
            return
        self.dispatched += 1
        physical_offset = -1
        queue.entry(self.view.queue_offset, &physical_offset, &size, &found_tags_code)
        if (
            physical_offset == self.view.physical_offset and size == self.view.size
            and self.may_have(queue.topic.encode(), found_tags_code)
        ):
            return
        self.report(
            f"entry {self.view.queue_offset} of queue {queue.queue_id} of {queue.topic} is "
            f"({physical_offset}, {size}, {found_tags_code}), but the log has "
            f"({self.view.physical_offset}, {self.view.size}, {tags_code})")

    cdef int64_t deliver_time(self, int64_t tags_code, rule=None):
        """The tags code of a parked message (RocketMQ: checkMessageAndReturnSize)."""
        cdef int32_t length = 0
        cdef const uint8_t *at
        if rule is None:
            rule = self.parking[0] if self.parking else ParkingRule((), 0)
        if is_text(self.view.topic, self.view.topic_length, TIMER_TOPIC):
            at = record.property_of(&self.view, TIMER_OUT_MS, &length)
            if at == NULL:
                return 0
            return rule.timer_wake(max(decimal(at, length), 0), self.view.store_timestamp)
        at = record.property_of(&self.view, DELAY, &length)
        level = 0 if at == NULL else decimal(at, length)
        if level <= 0 or not rule.delays_ms:
            return tags_code
        return rule.level_due(level, self.view.store_timestamp)

    cdef int64_t next_record(self, int64_t start) noexcept nogil:
        # A record has its magic and its own physical offset. One that goes on behind the bytes
        # that are there is looked at again when there are more.
        cdef int64_t end = self.segment_end
        cdef int64_t partial = -1
        cdef const uint8_t *at
        cdef int64_t position = start
        while position + layout.RECORD_FIXED <= end:
            at = <const uint8_t *> memchr(self.data + position + layout.AT_MAGIC, 0xDA,
                                          end - position - layout.RECORD_FIXED + 1)
            if at == NULL:
                position = end - layout.RECORD_FIXED + 1
                break
            position = at - self.data - layout.AT_MAGIC
            if (
                load_i32(at) == layout.RECORD_MAGIC
                and load_i64(self.data + position + layout.AT_PHYSICAL_OFFSET) == position
            ):
                if record.check(self.data + position, end - position, position, True,
                                &self.view) == record.RECORD_OK:
                    return position
                if partial < 0 and load_i32(self.data + position) > end - position:
                    partial = position
            position += 1
        self.searched = position if partial < 0 else partial
        return -1
