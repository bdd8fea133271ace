"""Pops in a lane, without the GIL: what waits in the queues is taken and answered.

PopTaking (broker/pop/taking.py) has the rule. A lane serves pops for which the event loop has made
a plan, if all is in memory. The event loop gets every other one: it reads from disk, takes what
comes again, and refuses.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memmove, memset

from congreve.base.atomic cimport load_acquire
from congreve.base.byte_buffer cimport make_room, release
from congreve.base.cursor cimport load_i32, load_i64
from congreve.base.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from congreve.base.slices cimport Slice, slice_of
from congreve.broker.pop.lanes.pop_plan cimport PopPlan, PopPlans, PopQueue
from congreve.broker.pop.lanes.retried cimport RetryPop, growth_of, put_retried
from congreve.broker.pop.lanes.table cimport PopFile
from congreve.engine.format cimport CQ_ENTRY
from congreve.engine.pop.changes cimport DONE, MOVED, is_sooner, take_in_lane
from congreve.engine.pop.state cimport Out
from congreve.engine.queue.consume_queue cimport ConsumeQueue
from congreve.engine.queue.queue_files cimport Mapping
from congreve.engine.read.gather cimport (
    GET_FOUND,
    GET_NO_MATCHED_MESSAGE,
    GET_NO_MESSAGE_IN_QUEUE,
    GET_OFFSET_OVERFLOW_BADLY,
    GET_OFFSET_OVERFLOW_ONE,
)
from congreve.records.layout cimport AT_QUEUE_OFFSET, AT_SIZE
from congreve.remoting.wire.answers cimport POP_RESPONSE_MAX, encode_pop_response
from congreve.remoting.wire.byte_text cimport put_decimal
from congreve.remoting.wire.fast_headers cimport INVISIBLE_MAX_MS, POP_MESSAGE, read_pop_header
from congreve.remoting.wire.frame cimport FLAG_ONEWAY, FRAME_WHOLE, HEADER_OK, next_frame
from congreve.remoting.wire.header_decoder cimport HeaderDecoder

from congreve.base.errors import CongreveError

cdef enum:
    POLLING_TIMEOUT = 210
    LATE_MS = 500               # as in checks.py
    SCANS_MAX = 8               # of one queue by one pop
    COSTLY_ENTRIES = 32         # at most, that a lane reads for a filter that took long once
    KEPT_BYTES = 1 << 20        # at most, of the buffers between two chunks

cdef int64_t FILTER_WORK_MAX = 200_000  # as for pulls
cdef int64_t BEHIND_ALL = 1 << 50       # no queue has such an offset
cdef int64_t FAR_MS = 1 << 50           # so that sums of times are in range


@cython.final
cdef class LanePops:
    """The pops of one lane (RocketMQ: PopMessageProcessor).

    The queues of its pops keep at most `files_max` files mapped.
    """

    def __init__(self, store, InFlight in_flight not None, PopPlans plans not None,
                 bytes broker_name not None, *, Py_ssize_t files_max):
        self.table = LanePopTable(plans, files_max)
        self.gather = Gather(store.log, store.limits, memory_only=True)
        self.in_flight = in_flight
        self.broker_name, self.broker = broker_name, slice_of(broker_name)

    def __dealloc__(self):
        release(&self.answers)
        release(&self.body)

    cdef void begin_chunk(self) noexcept nogil:
        self.answers.used = self.body.used = 0
        self.answered = 0
        if self.answers.size > KEPT_BYTES:
            release(&self.answers)
        if self.body.size > KEPT_BYTES:
            release(&self.body)

    cdef Outcome serve(self, const Frame *frame, const Header *header) noexcept nogil:
        cdef Outcome outcome = self.take_all(self.known)
        if outcome == SERVED and not self.answer(frame, header, 0, text_of(b"FOUND", 5)):
            return FOR_LOOP
        self.answered += outcome == SERVED
        return outcome

    cdef int64_t time_left(self) noexcept nogil:
        cdef int64_t begun_ms = self.pop.born_ms if self.pop.born_ms > 0 else self.now_ms
        return begun_ms + self.pop.poll_ms - self.now_ms if self.pop.poll_ms > 0 else 0

    cdef bint answer_empty(self, const Frame *frame, const Header *header) noexcept nogil:
        if not self.answer(
            frame, header, POLLING_TIMEOUT, text_of(b"NO_MESSAGE_IN_QUEUE", 19)
        ):
            return False
        self.answered += 1
        return True

    cdef bint read(self, const Header *header) noexcept nogil:
        read_pop_header(header, &self.pop)
        self.now_ms = self.gather.log.clock.now_ms()
        self.known = NULL
        if (
            self.pop.complete
            and not self.pop.ordered
            and not header.flag & FLAG_ONEWAY
            and 0 < self.pop.max_count <= MESSAGES_MAX
            and 0 <= self.pop.invisible_ms <= INVISIBLE_MAX_MS
            and max(self.pop.poll_ms, self.pop.born_ms) < FAR_MS
            and (
                self.pop.born_ms <= 0
                or self.now_ms - self.pop.born_ms <= self.pop.poll_ms + LATE_MS
            )
        ):
            self.known = self.table.find(&self.pop)
        return self.known != NULL

    cdef Slice taken_places(self) noexcept nogil:
        cdef Slice places
        places.data, places.length = self.places, <int32_t> (self.places_end - self.places)
        return places

    cdef Outcome take_all(self, LanePop *known) noexcept nogil:
        """Take messages of all queues of the pop."""
        cdef int32_t i, queue
        cdef bint all_seen = True
        cdef Found found
        self.count = 0
        self.bytes = self.left = 0
        self.body.used = 0
        self.starts_end, self.places_end = self.starts, self.places
        self.coming_again = self.left_to_loop(known)
        if self.coming_again:
            return FOR_LOOP
        self.turn += 1
        for i in range(known.count + known.retries):
            queue = self.queue_in_turn(known, i)
            if known.queues[queue].kind < 0:
                continue
            found = UNORDINARY
            if self.count < self.pop.max_count:
                found = self.take_from(known, queue)
                if found == UNORDINARY and i == 0:
                    return FOR_LOOP
                all_seen &= found != UNORDINARY
            if found == UNORDINARY and not self.look(known, queue, BEHIND_ALL, 1):
                continue
            self.left += max(
                self.gather.max_offset - self.next_of(known.queues[queue].window), 0
            )
        if self.count:
            return SERVED
        return EMPTY if all_seen else FOR_LOOP

    cdef int32_t queue_in_turn(self, const LanePop *known, int32_t place) noexcept nogil:
        """The queue at this place of the current pop's sequence."""
        cdef int32_t count = known.count
        if self.turn * known.retries_first % 100 < known.retries_first:
            place = place + count if place < known.retries else place - known.retries
        if place >= count or known.direction > 0:
            return place
        return count - 1 - place if known.direction < 0 else <int32_t> ((self.turn + place) % count)

    cdef Found take_from(self, LanePop *known, int32_t queue) noexcept nogil:
        cdef Window *window = known.queues[queue].window
        cdef int32_t kind = known.queues[queue].kind
        cdef Change outcome
        cdef int32_t count = 0
        cdef int64_t begin
        cdef int64_t size = 0
        cdef int _
        for _ in range(SCANS_MAX):
            begin = self.next_of(window)
            if known.costly and not kind and begin + COSTLY_ENTRIES < load_acquire(
                &(<ConsumeQueue> known.queues[queue].queue).max_offset
            ):
                return UNORDINARY
            if not self.look(known, queue, begin, self.pop.max_count - self.count):
                return UNORDINARY
            if self.gather.status == GET_FOUND:
                count = self.read_offsets()
            elif self.gather.status == GET_NO_MATCHED_MESSAGE and self.gather.next_offset > begin:
                count = 0
            elif (
                self.gather.status == GET_OFFSET_OVERFLOW_ONE
                or self.gather.status == GET_OFFSET_OVERFLOW_BADLY
                or self.gather.status == GET_NO_MESSAGE_IN_QUEUE
            ):
                return NOTHING
            else:
                return UNORDINARY
            size = self.put_found(kind, count)  # what is taken can be answered
            if size < 0:
                return UNORDINARY
            outcome = self.take(window, count, self.gather.next_offset)
            if outcome == MOVED:
                continue
            if outcome != DONE:
                return UNORDINARY
            if count:
                self.put_taken(
                    kind, (<ConsumeQueue> known.queues[queue].queue).queue_id, count, size
                )
                (<PopPlan> known.cached.plan).counter.add(count, size)
                return TAKEN
            if self.gather.next_offset >= self.gather.max_offset:
                return NOTHING
        return UNORDINARY

    cdef Change take(self, Window *window, int32_t count, int64_t upto) noexcept nogil:
        """Take the first of `offsets`, and note whether they are due before the loop looks."""
        cdef int64_t due_ms = self.now_ms + self.pop.invisible_ms
        cdef Change outcome
        cdef Out like
        memset(&like, 0, sizeof(Out))
        like.pop_ms, like.invisible_ms = self.now_ms, <uint32_t> self.pop.invisible_ms
        pthread_mutex_lock(&self.in_flight.pops.mutex)
        outcome = take_in_lane(
            &self.in_flight.pops, window, &like, self.offsets, count, upto
        )
        if outcome == DONE and count:
            self.due_sooner |= is_sooner(&self.in_flight.pops, due_ms)
        pthread_mutex_unlock(&self.in_flight.pops.mutex)
        return outcome

    cdef int32_t read_offsets(self) noexcept nogil:
        """The queue offsets of the messages found; returns their number."""
        cdef const uint8_t *at
        cdef const uint8_t *end
        cdef int32_t i, count = 0
        for i in range(self.gather.span_count):
            at = self.gather.spans[i].data
            end = at + self.gather.spans[i].length
            while at < end:
                self.offsets[count] = load_i64(at + AT_QUEUE_OFFSET)
                count += 1
                at += load_i32(at + AT_SIZE)
        return count

    cdef int64_t put_found(self, int32_t kind, int32_t count) noexcept nogil:
        cdef RetryPop pop
        cdef uint8_t *at
        cdef int64_t room = self.gather.size
        cdef int32_t i
        pop.topic, pop.group = self.pop.topic, self.pop.consumer_group
        pop.broker_name = self.broker
        pop.start_offset, pop.kind = self.offsets[0] if count else 0, kind
        pop.pop_ms, pop.invisible_ms = self.now_ms, self.pop.invisible_ms
        if kind:
            room += count * growth_of(&pop)
        if not make_room(&self.body, self.body.used + room):
            return -1
        at = self.body.data + self.body.used
        if not kind:
            self.gather.copy_to(<char *> at)
            return self.gather.size
        for i in range(self.gather.span_count):
            at = put_retried(at, self.gather.spans[i].data, self.gather.spans[i].length, &pop)
            if at == NULL:
                return -1
        return at - (self.body.data + self.body.used)

    cdef void put_taken(self, int32_t kind, int32_t queue_id, int32_t count,
                        int64_t size) noexcept nogil:
        """Add what was taken from a queue to the answer, whose body has it."""
        cdef int32_t i
        self.starts_end = put_decimal(
            put_queue(self.starts_end, kind, queue_id, self.count > 0), self.offsets[0]
        )
        self.places_end = put_queue(self.places_end, kind, queue_id, self.count > 0)
        for i in range(count):
            if i:
                self.places_end[0] = c","
                self.places_end += 1
            self.places_end = put_decimal(self.places_end, self.offsets[i])
        self.body.used += size
        self.bytes += size
        self.count += count

    cdef bint look(self, LanePop *known, int32_t queue, int64_t offset,
                   int32_t most) noexcept nogil:
        """Look for messages of a queue; False if that fails."""
        cdef PopFile *mapped = &known.files[queue]
        cdef bint looked
        if queue < known.count:
            looked = self.gather.look_mapped(
                <ConsumeQueue> known.queues[queue].queue, mapped.file, mapped.base, offset, most,
                (<PopPlan> known.cached.plan).tags, (<PopPlan> known.cached.plan).records,
            )
        else:   # what comes again has passed the filter
            looked = self.gather.look_mapped(
                <ConsumeQueue> known.queues[queue].queue, mapped.file, mapped.base, offset, most,
                None, None,
            )
        looked = looked or self.look_with_gil(known, queue, offset, most)
        if self.gather.filter_memory.work > FILTER_WORK_MAX:
            known.costly = True
        return looked

    cdef bint look_with_gil(self, LanePop *known, int32_t queue, int64_t offset,
                            int32_t most) noexcept with gil:
        cdef PopPlan plan = <PopPlan> known.cached.plan
        try:
            self.gather.look(<ConsumeQueue> known.queues[queue].queue, offset, most,
                             plan.tags if queue < known.count else None,
                             plan.records if queue < known.count else None)
            self.map_file(known, queue)
        except (CongreveError, MemoryError):
            return False
        return True

    cdef int map_file(self, LanePop *known, int32_t queue) except -1:
        """Map the queue's file that the next look needs."""
        cdef ConsumeQueue opened = <ConsumeQueue> known.queues[queue].queue
        cdef int64_t position = self.gather.next_offset * CQ_ENTRY
        cdef int64_t base = position - position % opened.file_size
        cdef Mapping mapping = opened.mapping_at(base)
        return self.table.keep_file(known, queue, mapping, base)

    cdef int64_t left_to_loop(self, const LanePop *known) noexcept nogil:
        """How many messages are in queues from which only the event loop takes."""
        cdef const PopQueue *queue
        cdef int64_t read_to, unread = 0
        cdef int32_t i
        for i in range(known.count, known.count + known.retries):
            queue = &known.queues[i]
            if queue.kind >= 0:
                continue
            if queue.window == NULL:
                read_to = load_acquire(&queue.read_to)
            else:
                read_to = self.next_of(queue.window)
            unread += max(load_acquire(&(<ConsumeQueue> queue.queue).max_offset) - read_to, 0)
        return unread

    cdef int64_t next_of(self, const Window *window) noexcept nogil:
        cdef int64_t offset
        pthread_mutex_lock(&self.in_flight.pops.mutex)
        offset = window.next
        pthread_mutex_unlock(&self.in_flight.pops.mutex)
        return offset

    cdef bint answer(self, const Frame *frame, const Header *header, int32_t code,
                     Slice remark) noexcept nogil:
        """Encode the answer with what was taken; False without memory."""
        cdef Slice starts
        cdef Slice places = self.taken_places()
        cdef uint8_t *at
        cdef Py_ssize_t size
        starts.data, starts.length = self.starts, <int32_t> (self.starts_end - self.starts)
        size = POP_RESPONSE_MAX + starts.length + places.length + self.body.used
        if not make_room(&self.answers, self.answers.used + size):
            return False
        at = self.answers.data + self.answers.used
        size = encode_pop_response(
            at, frame.serialize_type, header.opaque, code, remark, self.now_ms,
            self.pop.invisible_ms, self.left, starts, places, <int32_t> self.body.used,
        )
        memmove(at + size, self.body.data, self.body.used)
        self.answers.used += size + self.body.used
        return True

    def take_frame(self, bytes frame not None):
        """The answer to a whole frame, for tests; None if Python serves it."""
        cdef HeaderDecoder headers = HeaderDecoder()
        cdef Frame whole
        cdef Header header
        cdef Outcome outcome
        self.begin_chunk()
        if (
            next_frame(frame, len(frame), &whole) != FRAME_WHOLE
            or headers.decode(&whole, &header, NULL) != HEADER_OK
            or header.code != POP_MESSAGE
            or not self.read(&header)
        ):
            return None
        outcome = self.serve(&whole, &header)
        if outcome == EMPTY and self.time_left() <= 0 and self.answer_empty(&whole, &header):
            outcome = SERVED
        if outcome != SERVED:
            return None
        return PyBytes_FromStringAndSize(<char *> self.answers.data, self.answers.used)


cdef inline Slice text_of(const char *text, int32_t length) noexcept nogil:
    cdef Slice found
    found.data, found.length = <const uint8_t *> text, length
    return found


cdef inline uint8_t *put_queue(uint8_t *at, int32_t kind, int32_t queue_id,
                               bint follows) noexcept nogil:
    """Write how the entry of a queue begins in the texts of pop_offsets."""
    if follows:
        at[0] = c";"
        at += 1
    at[0], at[1] = <uint8_t> (c"0" + kind), c" "
    at = put_decimal(at + 2, queue_id)
    at[0] = c" "
    return at + 1
