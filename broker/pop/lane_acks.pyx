"""Acknowledgements of popped messages in a lane.

A lane settles a message that waits for its acknowledgement. Its answer waits for the journal, which
the event loop writes for all that lanes have settled. Every other acknowledgement is for the
handler (ack_processor.py), which has all rules, including this one.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize

from congreve.base.byte_buffer cimport make_room, release
from congreve.base.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from congreve.base.slices cimport Slice
from congreve.engine.pop.changes cimport DONE, settle_named
from congreve.engine.pop.window_table cimport NAME_FIXED, put_name
from congreve.remoting.wire.answers cimport SEND_RESPONSE_MAX, encode_response
from congreve.remoting.wire.fast_headers cimport ACK_MESSAGE, AckHeader, read_ack_header
from congreve.remoting.wire.frame cimport FLAG_ONEWAY, FRAME_WHOLE, HEADER_OK, next_frame
from congreve.remoting.wire.header_decoder cimport HeaderDecoder


@cython.final
cdef class LaneAcks:
    """The acknowledgements of one lane (RocketMQ: AckMessageProcessor)."""

    def __cinit__(self, InFlight in_flight not None):
        self.in_flight = in_flight

    def __dealloc__(self):
        release(&self.answers)

    cdef void begin_chunk(self) noexcept nogil:
        self.answers.used = 0
        self.served = 0

    cdef bint serve(self, const Frame *frame, const Header *header) noexcept nogil:
        cdef AckHeader ack
        cdef Slice no_remark
        read_ack_header(header, &ack)
        if not ack.complete or ack.ordered:
            return False
        if NAME_FIXED + ack.consumer_group.length + ack.topic.length > NAME_MAX:
            return False
        if not make_room(&self.answers, self.answers.used + SEND_RESPONSE_MAX):
            return False
        length = put_name(self.name, ack.consumer_group, ack.topic, ack.queue_id)
        pthread_mutex_lock(&self.in_flight.pops.mutex)
        outcome = settle_named(&self.in_flight.pops, self.name, length, ack.offset, ack.pop_ms)
        pthread_mutex_unlock(&self.in_flight.pops.mutex)
        if outcome != DONE:
            return False
        self.served += 1
        if not header.flag & FLAG_ONEWAY:
            no_remark.data, no_remark.length = NULL, 0
            self.answers.used += encode_response(
                self.answers.data + self.answers.used, frame.serialize_type, header.opaque, 0,
                no_remark,
            )
        return True

    def take(self, bytes frame not None):
        """The answer to a whole frame, for tests; None if Python serves it."""
        cdef HeaderDecoder headers = HeaderDecoder()
        cdef Frame whole
        cdef Header header
        self.begin_chunk()
        if (
            next_frame(frame, len(frame), &whole) != FRAME_WHOLE
            or headers.decode(&whole, &header, NULL) != HEADER_OK
            or header.code != ACK_MESSAGE
            or not self.serve(&whole, &header)
        ):
            return None
        return PyBytes_FromStringAndSize(<char *> self.answers.data, self.answers.used)
