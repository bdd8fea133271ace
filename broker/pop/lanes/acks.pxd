from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.base.byte_buffer cimport ByteBuffer
from congreve.base.clock cimport Clock
from congreve.base.slices cimport Slice
from congreve.broker.pop.lanes.batch_body cimport BatchedAck
from congreve.engine.pop.in_flight cimport InFlight
from congreve.engine.pop.state cimport Window
from congreve.remoting.wire.fast_headers cimport AckHeader
from congreve.remoting.wire.frame cimport Frame, Header
from congreve.remoting.wire.header_decoder cimport HeaderDecoder

cdef enum:
    NAME_MAX = 1024             # bytes of a window's name


cdef class LaneAcks:
    cdef InFlight in_flight
    cdef ByteBuffer answers     # of the current chunk
    cdef int32_t served         # acknowledgements of the current chunk
    cdef int32_t answered       # of them, those that are not one-way
    cdef int32_t changed        # changes of the invisible time among those
    cdef int32_t batches        # and batches of acknowledgements
    cdef bint due_sooner        # a message is due before the event loop looks
    cdef Clock clock
    cdef uint8_t[NAME_MAX] name
    cdef uint8_t[NAME_MAX] topic
    cdef Slice retry_prefix
    cdef HeaderDecoder headers  # of take()

    # Serves an acknowledgement or a change of the invisible time. False: nothing was done, and
    # Python serves it.
    cdef bint serve(self, const Frame *frame, const Header *header) noexcept nogil
    cdef void begin_chunk(self) noexcept nogil
    # The acknowledgements of one message among the answered ones.
    cdef int32_t singles(self) noexcept nogil
    cdef bint serve_batch(self, const Frame *frame, const Header *header) noexcept nogil
    cdef bint settle_batch(self, Slice body) noexcept nogil
    # Goes over a batch, and settles its messages. False: one of them is not ordinary.
    cdef bint go_over(self, Slice body, bint settles) noexcept nogil
    cdef bint is_done(self, Window *window, int64_t offset, int64_t pop_ms,
                      bint settles) noexcept nogil
    cdef Window *window_of(self, const BatchedAck *ack) noexcept nogil
    cdef bint settle(self, const AckHeader *ack, int32_t length) noexcept nogil
    cdef bint change(self, const AckHeader *ack, int32_t length, int64_t now_ms) noexcept nogil
