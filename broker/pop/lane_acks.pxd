from libc.stdint cimport int32_t, uint8_t

from congreve.base.byte_buffer cimport ByteBuffer
from congreve.engine.pop.in_flight cimport InFlight
from congreve.remoting.wire.frame cimport Frame, Header

cdef enum:
    NAME_MAX = 1024             # bytes of a window's name


cdef class LaneAcks:
    cdef InFlight in_flight
    cdef ByteBuffer answers     # of the current chunk
    cdef int32_t served         # acknowledgements of the current chunk
    cdef uint8_t[NAME_MAX] name

    # Serves an acknowledgement. False: nothing was done, and Python serves it.
    cdef bint serve(self, const Frame *frame, const Header *header) noexcept nogil
    cdef void begin_chunk(self) noexcept nogil
