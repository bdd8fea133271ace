"""The walk over a stretch of the log that recovery and verification make: check, then dispatch."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

import logging

from congreve.engine.consumequeue cimport ConsumeQueue
from congreve.engine.format cimport CQ_FILLER_SIZE
from congreve.engine.queuemap cimport KnownQueue, QueueMap
from congreve.records cimport layout, record
from congreve.records.cursor cimport load_i32, load_i64
from congreve.records.record cimport RecordView
from congreve.records.restore cimport decimal

from congreve.engine.errors import StoreFormatError
from congreve.engine.queuemap import is_topic

LOG = logging.getLogger(__name__)

cdef enum Stop:
    STOP_LIMIT = 0
    STOP_BLANK = 1
    STOP_END = 2
    STOP_BAD = 3
    STOP_QUEUE_UNKNOWN = 4      # these two never leave scan()
    STOP_QUEUE_ASKS = 5

LIMIT = STOP_LIMIT
BLANK = STOP_BLANK
END = STOP_END
BAD = STOP_BAD

# When a message is parked, its due time is reckoned a moment before its store time is taken.
cdef int64_t DUE_SLACK_MS = 1000
cdef bytes TIMER_TOPIC = b"rmq_sys_wheel_timer"


# True when the entry is in the queue afterwards; False when put() alone cannot do it.
cdef inline bint put_in_order(ConsumeQueue queue, const RecordView *view,
                              int64_t tags_code) noexcept nogil:
    if view.physical_offset + view.size <= queue.max_physical:
        return True
    if view.queue_offset != queue.max_offset or queue.room == 0:
        return False
    queue.put(view.physical_offset, view.size, tags_code)
    return True


cdef class LogScanner:
    cdef readonly int64_t position              # of the first record that was not taken
    cdef readonly int64_t records
    cdef readonly int64_t last_record
    cdef readonly int64_t last_store_timestamp
    cdef readonly int64_t dispatched            # records that have an entry, or should
    cdef readonly list missing                  # (topic, queue id) that compare did not find
    cdef object queues
    cdef object report
    cdef bint verify_crc
    cdef bint compare
    cdef QueueMap known
    cdef list delays_ms
    cdef int64_t timer_roll_ms
    cdef const uint8_t *data                    # of the segment being walked, less its base offset
    cdef int64_t segment_end
    cdef RecordView view

    def __init__(self, queues=None, *, bint verify_crc=True, bint compare=False,
                 delay_levels_ms=(), int64_t timer_roll_ms=0, report=LOG.warning):
        self.queues, self.verify_crc, self.compare = queues, verify_crc, compare
        self.report = report
        self.known = QueueMap()
        self.missing = []
        self.delays_ms = list(delay_levels_ms)
        self.timer_roll_ms = timer_roll_ms
        self.last_record = -1

    def scan(self, segment, int64_t base_offset, int64_t start, end=None):
        cdef bint dispatching = self.queues is not None
        cdef int64_t limit
        cdef Stop stop
        cdef Py_buffer buffer
        PyObject_GetBuffer(segment, &buffer, PyBUF_SIMPLE)
        try:
            limit = base_offset + buffer.len
            self.data = <const uint8_t *> buffer.buf - base_offset
            self.segment_end = limit
            self.position = start
            if end is not None:
                limit = min(limit, end)
            while True:
                with nogil:
                    stop = self.walk(limit, dispatching)
                if stop == STOP_QUEUE_UNKNOWN:
                    if not self.meet_queue():
                        return BAD
                elif stop == STOP_QUEUE_ASKS:
                    self.settle()
                    self.step()
                else:
                    return <int> stop
        finally:
            PyBuffer_Release(&buffer)

    def resync(self, segment, int64_t base_offset, int64_t start):
        cdef int64_t found
        cdef Py_buffer buffer
        PyObject_GetBuffer(segment, &buffer, PyBUF_SIMPLE)
        self.data = <const uint8_t *> buffer.buf - base_offset
        self.segment_end = base_offset + buffer.len
        with nogil:
            found = self.next_record(start)
        PyBuffer_Release(&buffer)
        return None if found < 0 else found

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
            if found != record.RECORD_OK or self.torn_behind_the_body():
                return STOP_BAD
            if dispatching and not self.view.sys_flag & layout.SYS_TRANSACTION_PREPARED:
                stream = self.known.find(self.view.topic, self.view.topic_length,
                                         self.view.queue_id)
                if stream.topic == NULL:
                    return STOP_QUEUE_UNKNOWN
                if stream.queue != NULL and (
                    self.compare or stream.delayed
                    or not put_in_order(<ConsumeQueue> stream.queue, &self.view, self.tags_code())
                ):
                    return STOP_QUEUE_ASKS
                self.dispatched += stream.queue != NULL
            self.step()
        return STOP_LIMIT

    # No CRC covers the properties. Where they end in zeros and nothing follows, they were torn.
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

    cdef bint meet_queue(self) except -1:
        # False for a queue that cannot be: the header is damaged where no CRC covers it.
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

    cdef settle(self):
        """One record that needs more than an entry put in order."""
        cdef KnownQueue *stream = self.known.find(self.view.topic, self.view.topic_length,
                                                  self.view.queue_id)
        cdef ConsumeQueue queue = <ConsumeQueue> stream.queue
        cdef int64_t tags_code = self.tags_code()
        if stream.delayed:
            tags_code = self.deliver_time(tags_code)
        if self.compare:
            self.compare_entry(queue, tags_code, DUE_SLACK_MS if stream.delayed else 0)
        elif self.view.physical_offset + self.view.size > queue.max_physical:
            self.dispatched += self.append(queue, tags_code)
        else:
            self.dispatched += 1

    cdef bint append(self, ConsumeQueue queue, int64_t tags_code) except -1:
        if self.view.queue_offset == 0 and queue.max_offset > 0:
            self.report(f"queue {queue.queue_id} of {queue.topic} begins anew at {self.position}: "
                        "it was deleted there once")
            queue.destroy()
        try:
            if queue.append(self.view.queue_offset, self.view.physical_offset, self.view.size,
                            tags_code):
                return True
            problem = f"queue {queue.queue_id} of {queue.topic} ends at {queue.max_offset}"
        except StoreFormatError as error:
            problem = str(error)
        self.report(f"the record at {self.position} claims queue offset {self.view.queue_offset}, "
                    f"but {problem}: passed over")
        return False

    cdef compare_entry(self, ConsumeQueue queue, int64_t tags_code, int64_t slack):
        cdef int64_t physical_offset = -1, found_tags_code = 0
        cdef int32_t size = 0
        if (
            queue.entry(queue.min_offset, &physical_offset, &size, &found_tags_code)
            and size != CQ_FILLER_SIZE and self.position < physical_offset
        ):
            return  # of an earlier queue of this name, which was deleted
        self.dispatched += 1
        physical_offset = -1
        queue.entry(self.view.queue_offset, &physical_offset, &size, &found_tags_code)
        if (
            physical_offset == self.view.physical_offset and size == self.view.size
            and -slack <= found_tags_code - tags_code <= slack
        ):
            return
        self.report(
            f"entry {self.view.queue_offset} of queue {queue.queue_id} of {queue.topic} is "
            f"({physical_offset}, {size}, {found_tags_code}), the log says "
            f"({self.view.physical_offset}, {self.view.size}, {tags_code})")

    cdef int64_t deliver_time(self, int64_t tags_code):
        """What a parked message has for a tags code (RocketMQ: checkMessageAndReturnSize)."""
        cdef int32_t length = 0
        cdef const uint8_t *at
        if self.view.topic[:self.view.topic_length] == TIMER_TOPIC:
            at = record.find_property(self.view.properties, self.view.properties_length,
                                      "TIMER_OUT_MS", 12, &length)
            if at == NULL:
                return 0
            return min(decimal(at, length), self.view.store_timestamp + self.timer_roll_ms)
        at = record.find_property(self.view.properties, self.view.properties_length, "DELAY", 5,
                                  &length)
        if at == NULL or not (<bytes> at[:length]).isdigit():
            return tags_code
        level = min(int(at[:length]), len(self.delays_ms))
        if level <= 0:
            return tags_code
        return self.view.store_timestamp + self.delays_ms[level - 1]

    cdef int64_t next_record(self, int64_t start) noexcept nogil:
        # A record is known by its magic and by naming its own place.
        cdef int64_t end = self.segment_end
        cdef const uint8_t *at
        cdef int64_t position = start
        while position + layout.RECORD_FIXED <= end:
            at = <const uint8_t *> memchr(self.data + position + layout.AT_MAGIC, 0xDA,
                                          end - position - layout.RECORD_FIXED + 1)
            if at == NULL:
                return -1
            position = at - self.data - layout.AT_MAGIC
            if (
                load_i32(at) == layout.RECORD_MAGIC
                and load_i64(self.data + position + layout.AT_PHYSICAL_OFFSET) == position
                and record.check(self.data + position, end - position, position, True,
                                 &self.view) == record.RECORD_OK
            ):
                return position
            position += 1
        return -1
