"""Finds delivered parked messages in the log."""

cimport cython
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t

from congreve.base.cursor cimport load_i32, load_i64
from congreve.engine.format cimport CQ_AT_SIZE, CQ_AT_TAGS_CODE, CQ_ENTRY, CQ_FILLER_SIZE
from congreve.engine.log.commit_log cimport CommitLog
from congreve.engine.queue.consume_queue cimport ConsumeQueue
from congreve.io_backends.backend cimport Segment
from congreve.io_backends.mapping cimport Mapping
from congreve.records.byte_compare cimport is_text, same
from congreve.records.layout cimport BLANK_MIN
from congreve.records.message.properties cimport (
    DELAY, REAL_TOPIC, TIMER_OUT_MS,
)
from congreve.records.message.topics cimport (
    SCHEDULE_TOPIC, TIMER_QUEUE_ID, TIMER_TOPIC, TRANS_HALF_TOPIC, UNDELIVERABLE_TOPIC,
)
from congreve.records.record cimport (
    RECORD_BLANK, RECORD_OK, Message, RecordView, check, encoded_size, is_legal, property_of,
)
from congreve.records.restore cimport RESTORE_DELAYED, RESTORE_OK, decimal, restore

from array import array

from congreve.engine.queue.queue_map import is_topic
from congreve.engine.recovery.scan import LogScanner


cdef inline int64_t number(const RecordView *view, const char *name) noexcept nogil:
    cdef int32_t digits = 0
    cdef const uint8_t *at = property_of(view, name, &digits)
    return -1 if at == NULL else decimal(at, digits)


@cython.final
cdef class DeliveryScan:
    """Reads the log's tail after a stop: a message was delivered if its record is in the log.

    RocketMQ has no counterpart: it relies on saved offsets and may deliver again. Only the
    appending thread may call the methods.
    """

    cdef CommitLog log
    cdef object queues
    cdef Segment source         # of the current parked record
    cdef int64_t position       # of the current record
    cdef RecordView view
    cdef RecordView parked

    def __cinit__(self, CommitLog log, queues):
        self.log = log
        self.queues = queues

    def levels(self, int64_t start, dict offsets, recalled=frozenset()):
        """Delay level -> next offset in its queue, from those at physical offset `start`.

        A level delivers in order, and a copy differs from the parked record in topic and queue
        alone; its queue may be another than the parked one. Each copy after `start`, also one in
        the topic of undeliverable messages, advances its level's offset past the entry that it
        copies.
        Entries in `recalled`, pairs of level and offset, have no copies.
        """
        cdef dict found = dict(offsets)
        cdef int64_t level, offset
        for _ in self.candidates(start, False):
            level = number(&self.view, DELAY)
            if not 0 < level <= INT32_MAX:
                continue
            queue = self.queues.find(SCHEDULE_TOPIC.decode(), level - 1)
            if queue is not None:
                offset = max(found.get(level, 0), queue.min)
                found[level] = self.offset_after(queue, offset, level, recalled)
        return found

    def timed(self, int64_t start, ConsumeQueue queue):
        """Entries of the timer queue that were handled: pairs of int64, wake in ms and offset.

        An entry was handled if its copy, delivered or parked again, is after `start`: the
        prepared offset of the copy is the physical offset of the parked record plus one.
        """
        found = array("q")
        cdef int64_t physical_offset = 0, wake = 0
        cdef int32_t size = 0
        for _ in self.candidates(start, True):
            if (
                self.read_parked(self.view.prepared_offset - 1)
                and is_text(self.parked.topic, self.parked.topic_length, TIMER_TOPIC)
                and queue.entry(self.parked.queue_offset, &physical_offset, &size, &wake)
                and physical_offset == self.parked.physical_offset
            ):
                found.append(wake)
                found.append(physical_offset)
        self.source = None
        return found

    def due_times(self, offsets):
        """The due times (TIMER_OUT_MS) of the timed records at these physical offsets, in ms.

        Native int64 in, array("q") of the same length out; -1 where there is no valid record.
        """
        found = array("q", bytes(8 * len(offsets)))
        cdef const int64_t[::1] places = offsets
        cdef int64_t[::1] due = found
        cdef int64_t i
        for i in range(places.shape[0]):
            due[i] = number(&self.parked, TIMER_OUT_MS) if self.read_parked(places[i]) else -1
        self.source = None
        return found

    def first_damaged(self, ConsumeQueue queue, int64_t start, int64_t stop, is_valid):
        """The first of the timer queue's entries [start, stop) that is damaged; `stop` without one.

        It calls `is_valid` (QueueRepair.is_valid) for entries that it cannot compare itself.
        """
        cdef int64_t per_file = queue.file_size // CQ_ENTRY
        cdef int64_t at = start, file_stop
        cdef Mapping mapping
        cdef Segment source
        cdef const uint8_t *entries
        try:
            while at < stop:
                mapping = queue.mapping_at(at // per_file * queue.file_size)
                if mapping is None:
                    at = queue.next_file_offset(at)
                    continue
                file_stop = min(stop, (at // per_file + 1) * per_file)
                # The address that entry 0 of the queue would have.
                entries = mapping.data - at // per_file * queue.file_size
                with nogil:
                    at = self.plain_to(entries, at, file_stop)
                if at == file_stop:
                    continue
                source = self.log.segment_at(load_i64(entries + at * CQ_ENTRY))
                if source is not None and source is not self.source:
                    self.source = source
                elif is_valid(queue, at):
                    at += 1
                else:
                    return at
            return stop
        finally:
            self.source = None

    cdef int64_t plain_to(self, const uint8_t *entries, int64_t start,
                          int64_t stop) noexcept nogil:
        """The first entry that needs the full check of QueueRepair."""
        cdef const uint8_t *entry
        cdef int64_t at, place
        for at in range(start, stop):
            entry = entries + at * CQ_ENTRY
            if load_i32(entry + CQ_AT_SIZE) == CQ_FILLER_SIZE:
                continue
            if self.source is None:
                return at
            place = load_i64(entry) - self.source.base_offset
            if (
                not 0 <= place < self.source.size
                or check(self.source.data + place, self.source.published() - place,
                         load_i64(entry), False, &self.parked) != RECORD_OK
                or self.parked.size != load_i32(entry + CQ_AT_SIZE)
                or self.parked.queue_offset != at or self.parked.queue_id != TIMER_QUEUE_ID
                or not is_text(self.parked.topic, self.parked.topic_length, TIMER_TOPIC)
                or number(&self.parked, TIMER_OUT_MS) != load_i64(entry + CQ_AT_TAGS_CODE)
            ):
                return at
        return stop

    def candidates(self, int64_t start, bint timed):
        """Stop at each record that may be a delivery; `view` has it then."""
        cdef Segment segment
        cdef int64_t end = self.log.max_offset
        cdef bint at_one
        self.position = max(start, self.log.min_offset)
        for segment in self.log.segments:
            while segment.base_offset <= self.position < min(segment.base_offset + segment.size,
                                                             end):
                with nogil:
                    at_one = self.walk(segment, end, timed)
                if at_one:
                    yield
                    self.position += self.view.size
                elif self.position < segment.base_offset + segment.size:
                    self.pass_damage(segment)
        self.source = None

    cdef bint walk(self, Segment segment, int64_t end, bint timed) noexcept nogil:
        """True at a candidate, False at the end of the segment's records."""
        cdef int64_t at = self.position - segment.base_offset
        cdef int64_t limit = min(end - segment.base_offset, segment.published())
        cdef int64_t found
        while at < limit:
            found = check(segment.data + at, limit - at, segment.base_offset + at, False,
                          &self.view)
            if found != RECORD_OK:
                if found == RECORD_BLANK and at + self.view.size == segment.size:
                    at = segment.size
                self.position = segment.base_offset + at
                return False
            if self.view.prepared_offset > 0 if timed else self.is_from_a_level():
                self.position = segment.base_offset + at
                return True
            at += self.view.size
        self.position = segment.base_offset + segment.size
        return False

    cdef bint is_from_a_level(self) noexcept nogil:
        cdef int32_t length = 0
        cdef const uint8_t *topic
        if self.view.prepared_offset != 0:
            return False
        if is_text(self.view.topic, self.view.topic_length, UNDELIVERABLE_TOPIC):
            return True
        topic = property_of(&self.view, REAL_TOPIC, &length)
        return topic != NULL and same(topic, length, self.view.topic, self.view.topic_length)

    cdef int pass_damage(self, Segment segment) except -1:
        scanner = LogScanner(verify_crc=False)
        found = scanner.resync(segment, segment.base_offset, self.position + 1)
        self.position = segment.base_offset + segment.size if found is None else found
        return 0

    cdef int64_t offset_after(self, ConsumeQueue queue, int64_t offset, int64_t level,
                              recalled) except -1:
        """The offset after the entry, from `offset` on, whose copy is in `view`; else `offset`."""
        cdef int64_t at = offset, physical_offset = 0, tags_code = 0
        cdef int32_t size = 0
        cdef Message message
        cdef bint has_target
        while at < queue.max_offset:
            if (
                queue.entry(at, &physical_offset, &size, &tags_code) and size != CQ_FILLER_SIZE
                and self.read_parked(physical_offset)
            ):
                has_target = (
                    restore(&self.parked, RESTORE_DELAYED, NULL, &message) == RESTORE_OK
                    and self.can_be_delivered(&message)
                )
                if self.is_copy(&message, has_target):
                    return at + 1
                if has_target and (level, at) not in recalled:
                    return offset
            at += 1  # delivery skips it, too, or has set it aside before a later copy
        return offset

    cdef bint read_parked(self, int64_t physical_offset) except -1:
        """Read the record at a physical offset into `parked`; False if there is no valid one."""
        cdef int64_t at
        if self.source is None or not (
            0 <= physical_offset - self.source.base_offset < self.source.size
        ):
            self.source = self.log.segment_at(physical_offset)
            if self.source is None:
                return False
        at = physical_offset - self.source.base_offset
        return check(self.source.data + at, self.source.published() - at, physical_offset, True,
                     &self.parked) == RECORD_OK

    cdef bint is_copy(self, const Message *message, bint has_target) noexcept nogil:
        """Whether `view` is what delivery made of `parked`: `message`, or the record set aside."""
        cdef const RecordView *one = &self.view
        cdef const RecordView *other = &self.parked
        return (
            (
                same(one.topic, one.topic_length, message.topic, message.topic_length)
                if has_target
                else is_text(one.topic, one.topic_length, UNDELIVERABLE_TOPIC)
            )
            and one.flag == other.flag
            and one.sys_flag == other.sys_flag and one.reconsume_times == other.reconsume_times
            and one.born_timestamp == other.born_timestamp and one.body_crc == other.body_crc
            and one.body_length == other.body_length
            and same(one.born_host, one.born_host_length, other.born_host, other.born_host_length)
            and same(one.store_host, one.store_host_length, other.store_host,
                     other.store_host_length)
            and same(one.properties, one.properties_length, other.properties,
                     other.properties_length)
        )

    cdef bint can_be_delivered(self, const Message *message) except -1:
        cdef bytes topic = message.topic[:message.topic_length]
        return (
            is_topic(topic) and topic != TRANS_HALF_TOPIC and is_legal(message)
            and encoded_size(message) + BLANK_MIN <= self.log.segment_size
        )
