"""Acknowledgements and changes of the invisible time in a lane.

A lane settles or changes a message that waits for its acknowledgement. The answer waits for the
journal (journal_writer.pyx). Every other request is for the handler (ack_processor.py), which has
all rules, including these.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.base.byte_buffer cimport make_room, release
from congreve.base.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from congreve.base.slices cimport Slice, slice_of
from congreve.broker.pop.lanes.batch_body cimport (
    BatchedAck,
    BatchReader,
    begin_batch,
    bits_at,
    next_batched,
)
from congreve.engine.pop.changes cimport (
    DONE,
    REPEATED,
    Outcome,
    extend_named,
    find_waiting,
    is_sooner,
    settle_in_lane,
    settle_named,
)
from congreve.engine.pop.state cimport Place
from congreve.engine.pop.window_table cimport NAME_FIXED, put_name, window_named
from congreve.remoting.wire.answers cimport (
    SEND_RESPONSE_MAX,
    encode_change_response,
    encode_response,
)
from congreve.remoting.wire.byte_text cimport put
from congreve.remoting.wire.fast_headers cimport (
    ACK_MESSAGE,
    BATCH_ACK_MESSAGE,
    CHANGE_MESSAGE_INVISIBLETIME,
    INVISIBLE_MAX_MS,
    AckHeader,
    read_ack_header,
)
from congreve.remoting.wire.frame cimport FLAG_ONEWAY, FRAME_WHOLE, HEADER_OK, next_frame
from congreve.remoting.wire.header_decoder cimport HeaderDecoder

from congreve.records.message.topics import RETRY_PREFIX

cdef bytes _RETRY_PREFIX = RETRY_PREFIX.encode()

cdef enum:
    BATCH_MAX = 16 << 10        # bytes of a body; BATCH_ACK_MAX are more

cdef int64_t NEAR_MS = 1000     # what was popped later was popped before the clock was set back


cdef inline int64_t changed_at(int64_t pop_ms, int64_t now_ms) noexcept nogil:
    return pop_ms + 1 if now_ms <= pop_ms < now_ms + NEAR_MS else now_ms


def pop_time_of_change(int64_t pop_ms, int64_t now_ms):
    """The new pop time of what was popped at `pop_ms`, in ms: not the same, so handles differ."""
    return changed_at(pop_ms, now_ms)


@cython.final
cdef class LaneAcks:
    """The acknowledgements of one lane, and its changes of the invisible time.

    (RocketMQ: AckMessageProcessor, ChangeInvisibleTimeProcessor.)
    """

    def __cinit__(self, InFlight in_flight not None, Clock clock not None):
        self.in_flight, self.clock = in_flight, clock
        self.retry_prefix = slice_of(_RETRY_PREFIX)

    def __dealloc__(self):
        release(&self.answers)

    cdef void begin_chunk(self) noexcept nogil:
        self.answers.used = 0
        self.served = self.answered = self.changed = self.batches = 0

    cdef int32_t singles(self) noexcept nogil:
        return self.answered - self.changed - self.batches

    cdef bint serve(self, const Frame *frame, const Header *header) noexcept nogil:
        cdef AckHeader ack
        cdef Slice remark
        cdef int64_t now_ms = 0
        cdef bint changes = header.code == CHANGE_MESSAGE_INVISIBLETIME
        cdef uint8_t *at
        if header.code == BATCH_ACK_MESSAGE:
            return self.serve_batch(frame, header)
        read_ack_header(header, &ack)
        if not ack.complete or ack.ordered:
            return False
        if changes and not 0 <= ack.invisible_ms <= INVISIBLE_MAX_MS:
            return False
        if NAME_FIXED + ack.consumer_group.length + ack.topic.length > NAME_MAX:
            return False
        if not make_room(&self.answers, self.answers.used + SEND_RESPONSE_MAX):
            return False
        if changes:
            now_ms = changed_at(ack.pop_ms, self.clock.now_ms())
        length = put_name(self.name, ack.consumer_group, ack.topic, ack.queue_id)
        if not (self.change(&ack, length, now_ms) if changes else self.settle(&ack, length)):
            return False
        self.served += 1
        if header.flag & FLAG_ONEWAY:
            return True
        self.answered += 1
        at = self.answers.data + self.answers.used
        if changes:
            self.changed += 1
            remark.data, remark.length = b"not set any response code", 25
            self.answers.used += encode_change_response(
                at, frame.serialize_type, header.opaque, remark, now_ms, ack.invisible_ms,
                ack.revive_queue_id,
            )
        else:
            remark.data, remark.length = NULL, 0
            self.answers.used += encode_response(
                at, frame.serialize_type, header.opaque, 0, remark
            )
        return True

    cdef bint serve_batch(self, const Frame *frame, const Header *header) noexcept nogil:
        cdef Slice remark
        if frame.body.length > BATCH_MAX:
            return False
        if not make_room(&self.answers, self.answers.used + SEND_RESPONSE_MAX):
            return False
        if not self.settle_batch(frame.body):
            return False
        self.served += 1
        if not header.flag & FLAG_ONEWAY:
            self.answered += 1
            self.batches += 1
            remark.data, remark.length = NULL, 0
            self.answers.used += encode_response(
                self.answers.data + self.answers.used, frame.serialize_type, header.opaque, 0,
                remark,
            )
        return True

    cdef bint settle_batch(self, Slice body) noexcept nogil:
        cdef bint settled
        pthread_mutex_lock(&self.in_flight.pops.mutex)
        settled = self.go_over(body, False) and self.go_over(body, True)
        pthread_mutex_unlock(&self.in_flight.pops.mutex)
        return settled

    cdef bint go_over(self, Slice body, bint settles) noexcept nogil:
        cdef BatchReader reader
        cdef BatchedAck ack
        cdef Window *window
        cdef uint8_t[3] bits
        cdef int64_t offset
        cdef int32_t group, count, i
        begin_batch(&reader, body)
        while next_batched(&reader, &ack):
            window = self.window_of(&ack)
            if window == NULL or ack.bits.length % 4:
                return False
            offset = ack.start_offset
            for group in range(ack.bits.length // 4):
                count = bits_at(ack.bits, group, bits)
                if count < 0:
                    return False
                for i in range(8 * count):
                    if bits[i // 8] >> i % 8 & 1 and not self.is_done(
                        window, offset + i, ack.pop_ms, settles
                    ):
                        return False
                offset += 8 * count
        return reader.good

    cdef bint is_done(self, Window *window, int64_t offset, int64_t pop_ms,
                      bint settles) noexcept nogil:
        cdef Outcome outcome
        cdef Place place
        if not settles:
            return find_waiting(window, offset, pop_ms, &place) == DONE
        outcome = settle_in_lane(&self.in_flight.pops, window, offset, pop_ms)
        return outcome == DONE or outcome == REPEATED   # it is in the batch twice

    cdef Window *window_of(self, const BatchedAck *ack) noexcept nogil:
        cdef Slice topic = ack.topic
        cdef uint8_t *at = self.topic
        if 2 * NAME_FIXED + ack.group.length + ack.topic.length > NAME_MAX // 2:
            return NULL
        if ack.kind:
            at = put(at, <const char *> self.retry_prefix.data, self.retry_prefix.length)
            at = put(at, <const char *> ack.group.data, ack.group.length)
            at[0] = c"_" if ack.kind == 1 else c"+"
            at = put(at + 1, <const char *> ack.topic.data, ack.topic.length)
            topic.data, topic.length = self.topic, <int32_t> (at - self.topic)
        return window_named(
            &self.in_flight.pops.windows, self.name,
            put_name(self.name, ack.group, topic, ack.queue_id),
        )

    cdef bint settle(self, const AckHeader *ack, int32_t length) noexcept nogil:
        cdef Outcome outcome
        pthread_mutex_lock(&self.in_flight.pops.mutex)
        outcome = settle_named(&self.in_flight.pops, self.name, length, ack.offset, ack.pop_ms)
        pthread_mutex_unlock(&self.in_flight.pops.mutex)
        return outcome == DONE

    cdef bint change(self, const AckHeader *ack, int32_t length, int64_t now_ms) noexcept nogil:
        cdef Outcome outcome
        pthread_mutex_lock(&self.in_flight.pops.mutex)
        outcome = extend_named(&self.in_flight.pops, self.name, length, ack.offset, ack.pop_ms,
                               now_ms, ack.invisible_ms)
        if outcome == DONE:
            self.due_sooner |= is_sooner(&self.in_flight.pops, now_ms + ack.invisible_ms)
        pthread_mutex_unlock(&self.in_flight.pops.mutex)
        return outcome == DONE

    def take(self, bytes frame not None):
        """The answer to a whole frame, for tests; None if Python serves it."""
        cdef Frame whole
        cdef Header header
        if self.headers is None:
            self.headers = HeaderDecoder()
        self.begin_chunk()
        if (
            next_frame(frame, len(frame), &whole) != FRAME_WHOLE
            or self.headers.decode(&whole, &header, NULL) != HEADER_OK
            or header.code not in (
                ACK_MESSAGE, BATCH_ACK_MESSAGE, CHANGE_MESSAGE_INVISIBLETIME
            )
            or not self.serve(&whole, &header)
        ):
            return None
        return PyBytes_FromStringAndSize(<char *> self.answers.data, self.answers.used)
