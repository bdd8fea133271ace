"""Copies of messages that come again, many at a time and without the GIL.

PopRedelivery (broker/pop/redelivery.py) has the rule, and copies what is not ordinary.
"""

cimport cython
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t

from congreve.base.atomic cimport load_acquire
from congreve.base.byte_buffer cimport ByteBuffer, make_room, release
from congreve.base.clock cimport monotonic_ns
from congreve.base.cursor cimport load_i32, load_i64
from congreve.base.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from congreve.base.slices cimport Slice, slice_of
from congreve.engine.format cimport CQ_AT_SIZE, CQ_ENTRY, CQ_FILLER_SIZE
from congreve.engine.log.commit_log cimport (
    APPEND_OK,
    Appended,
    AppendStatus,
    CommitLog,
    Segment,
)
from congreve.engine.pop.changes cimport NO_MEMORY, Outcome, settle
from congreve.engine.pop.in_flight cimport InFlight, PopWindow
from congreve.engine.queue.consume_queue cimport ConsumeQueue
from congreve.engine.queue.queue_files cimport Mapping
from congreve.records.byte_compare cimport same
from congreve.records.host cimport Host
from congreve.records.layout cimport PROPERTY_SEPARATOR
from congreve.records.message.properties cimport (
    FIRST_POP_TIME,
    ORIGIN_GROUP,
    put_name,
    put_next_name,
)
from congreve.records.packed_host cimport unpack_host
from congreve.records.record cimport (
    RECORD_OK,
    Message,
    RecordView,
    check,
    encoded_size,
    property_of,
    tags_code,
)
from congreve.remoting.wire.byte_text cimport put, put_decimal

from congreve.base.errors import CongreveError

MOVED_MS = MOVED
"""The pop time of messages that no member popped: they are moved to another retry topic."""

cdef enum:
    MOVED = 1
    # The append lock is held for a piece: so many messages, or bytes besides the last message.
    PIECE_MAX = 16
    PIECE_BYTES = 32 << 10
    ADDED_FIXED = 64    # bytes that are added to the properties of a message, without the group
    ROW = 5             # numbers of a message, as in Due
    AT_POP_MS = 1
    AT_ORDERED = 4

# Why a pass ends before its last message.
cdef enum Stop:
    NEXT
    NOT_ORDINARY        # the rule has to look at the next message
    OTHER_FILE          # of the queue
    OTHER_SEGMENT       # of the log, for `place`
    NO_ROOM             # for the next copy, for the reason `refusal`
    ENOUGH


@cython.final
cdef class RetryCopies:
    """Copies messages of one store for their groups, as PopRedelivery.

    One thread calls it. A copy and the end of its message are one step for the journal: both happen
    under the append lock, which who writes the journal holds, too. (RocketMQ: PopReviveService.)
    """

    cdef CommitLog log
    cdef InFlight in_flight
    cdef readonly int64_t end
    """The log's end after the last copy."""
    # The current call.
    cdef PopWindow window
    cdef ConsumeQueue queue
    cdef ConsumeQueue target
    cdef bytes queue_topic
    cdef bytes target_topic
    cdef Slice source_topic
    cdef Slice topic            # of the copies
    cdef Slice group
    cdef Host host
    cdef int32_t attempts
    cdef int64_t until_ns
    cdef const int64_t *rows
    cdef int64_t row_count
    cdef int64_t done           # messages that are copied
    cdef Mapping file           # of the queue, whose first byte is at `file_base`
    cdef int64_t file_base
    cdef Segment segment
    cdef int64_t place
    cdef AppendStatus refusal
    cdef bint starved           # no memory for the journal
    # The next piece.
    cdef Message[PIECE_MAX] piece
    cdef int32_t count
    cdef int64_t size
    cdef ByteBuffer added

    def __cinit__(self, CommitLog log not None, InFlight in_flight not None):
        self.log, self.in_flight = log, in_flight

    def __dealloc__(self):
        release(&self.added)

    def copy(self, PopWindow window not None, const int64_t[:, ::1] rows, ConsumeQueue queue,
             ConsumeQueue target not None, *, bytes host not None, int32_t attempts,
             int64_t until_ns):
        """Copy messages that are due from `queue` to the group's retry topic, and settle them.

        `rows` are those of a Due. Returns how many of the first ones were copied: it ends before
        one that is not ordinary, and at `until_ns` of the monotonic clock. Raises MemoryError.
        """
        cdef bytes group = window.group.encode()
        cdef Stop stop = NEXT
        if rows.shape[1] != ROW:
            raise ValueError(f"rows have {rows.shape[1]} numbers, not {ROW}")
        self.done, self.row_count = 0, rows.shape[0]
        if queue is None or not self.row_count:
            return 0
        if not make_room(&self.added, PIECE_MAX * (ADDED_FIXED + len(group))):
            raise MemoryError
        self.rows = &rows[0, 0]
        self.window, self.queue, self.target = window, queue, target
        self.queue_topic, self.target_topic = queue.topic.encode(), target.topic.encode()
        self.source_topic, self.topic = slice_of(self.queue_topic), slice_of(self.target_topic)
        self.group = slice_of(group)
        unpack_host(&self.host, host)
        self.attempts, self.until_ns, self.starved = attempts, until_ns, False
        try:
            while self.done < self.row_count and self.resume(stop):
                with nogil:
                    stop = self.walk()
        finally:
            self.file = self.segment = None
        if self.starved:
            raise MemoryError
        return self.done

    cdef bint resume(self, Stop stop) except -1:
        """Do the step that needs the GIL; False if the pass ends."""
        if stop == OTHER_FILE:
            self.file_base = self.base_of(self.rows[self.done * ROW])
            self.file = self.queue.mapping_at(self.file_base)
            return self.file is not None
        if stop == OTHER_SEGMENT:
            self.segment = self.log.segment_at(self.place)
            return self.segment is not None
        if stop == NO_ROOM:
            try:
                return self.log.retry(self.refusal, self.target)
            except CongreveError:  # it comes again for the rule, which reports it
                return False
        return stop == NEXT

    # --- without the GIL

    cdef Stop walk(self) noexcept nogil:
        cdef Stop stop = NEXT
        while self.done < self.row_count and stop == NEXT:
            stop = self.read_piece()
            if not self.append_piece():
                return NO_ROOM
            if self.count and (self.starved or monotonic_ns() >= self.until_ns):
                return ENOUGH
        return stop

    cdef Stop read_piece(self) noexcept nogil:
        cdef int64_t stop_at = min(self.done + PIECE_MAX, self.row_count)
        cdef Stop stop
        self.count = 0
        self.size = 0
        while self.done + self.count < stop_at and self.size < PIECE_BYTES:
            stop = self.read(self.rows + (self.done + self.count) * ROW)
            if stop != NEXT:
                return stop
        return NEXT

    cdef inline int64_t base_of(self, int64_t offset) noexcept nogil:
        return offset * CQ_ENTRY // self.queue.file_size * self.queue.file_size

    # Adds the copy of a message to the piece.
    cdef Stop read(self, const int64_t *row) noexcept nogil:
        cdef RecordView view
        cdef const uint8_t *entry
        cdef int64_t offset = row[0], at
        if (
            row[AT_ORDERED] or row[AT_POP_MS] <= MOVED
            or not self.queue.min_offset <= offset < load_acquire(&self.queue.max_offset)
        ):
            return NOT_ORDINARY
        if self.file is None or self.base_of(offset) != self.file_base:
            return OTHER_FILE
        entry = self.file.data + (offset * CQ_ENTRY - self.file_base)
        if load_i32(entry + CQ_AT_SIZE) == CQ_FILLER_SIZE:
            return NOT_ORDINARY
        self.place = load_i64(entry)
        at = -1 if self.segment is None else self.place - self.segment.base_offset
        if at < 0 or at >= self.segment.size:
            return OTHER_SEGMENT
        if (
            check(self.segment.data + at, self.segment.published() - at, self.place, True, &view)
            != RECORD_OK
            or view.queue_offset != offset or view.queue_id != self.queue.queue_id
            or not same(view.topic, view.topic_length, self.source_topic.data,
                        self.source_topic.length)
        ):
            return NOT_ORDINARY
        return self.add(&view, row[AT_POP_MS])

    # The text of a property that is there already stays where the rule leaves it, too.
    cdef Stop add(self, const RecordView *view, int64_t pop_ms) noexcept nogil:
        cdef Message *message = &self.piece[self.count]
        cdef uint8_t *begin = self.added.data + self.count * (ADDED_FIXED + self.group.length)
        cdef uint8_t *out = begin
        cdef int32_t length = 0
        cdef const uint8_t *first = property_of(view, FIRST_POP_TIME, &length)
        cdef const uint8_t *group = property_of(view, ORIGIN_GROUP, &length)
        if (
            view.reconsume_times >= self.attempts
            or (first != NULL and not view.reconsume_times)
            or (group != NULL and not same(group, length, self.group.data, self.group.length))
        ):
            return NOT_ORDINARY
        if first == NULL:
            out = put_decimal(put_name(out, FIRST_POP_TIME), pop_ms)
        if group == NULL:
            out = put_name(out, ORIGIN_GROUP) if out == begin else put_next_name(out, ORIGIN_GROUP)
            out = put(out, <const char *> self.group.data, self.group.length)
        message.topic, message.topic_length = self.topic.data, self.topic.length
        message.body, message.body_length = view.body, view.body_length
        message.properties, message.properties_length = view.properties, view.properties_length
        if message.properties_length and (
            message.properties[message.properties_length - 1] == PROPERTY_SEPARATOR
        ):
            message.properties_length -= 1
        message.properties_more = begin
        message.properties_more_length = <int32_t> (out - begin)
        message.queue_id = self.target.queue_id
        message.flag, message.sys_flag = view.flag, view.sys_flag
        message.reconsume_times = view.reconsume_times + (view.reconsume_times < INT32_MAX)
        message.born_timestamp = view.born_timestamp
        message.prepared_offset = view.physical_offset + 1
        message.tags_code = tags_code(view.properties, view.properties_length)
        message.born_host = message.store_host = self.host
        self.size += encoded_size(message)
        self.count += 1
        return NEXT

    # False, with the reason in `refusal`: there is no room for one of the piece.
    cdef bint append_piece(self) noexcept nogil:
        cdef AppendStatus status = APPEND_OK
        cdef Appended appended
        cdef int32_t i
        if not self.count:
            return True
        self.log.lock.take()
        for i in range(self.count):
            status = self.log.append(
                &self.piece[i], self.target, self.log.clock.now_ms(), &appended
            )
            if status != APPEND_OK:
                break
            self.end = appended.end
            self.settle_copied(self.rows + self.done * ROW)
            self.done += 1
        self.log.lock.drop()
        self.log.lock.let_others_in()
        self.refusal = status
        return status == APPEND_OK

    cdef void settle_copied(self, const int64_t *row) noexcept nogil:
        cdef Outcome outcome
        pthread_mutex_lock(&self.in_flight.pops.mutex)
        outcome = settle(&self.in_flight.pops, &self.window.state, row[0], row[AT_POP_MS])
        pthread_mutex_unlock(&self.in_flight.pops.mutex)
        self.starved |= outcome == NO_MEMORY
