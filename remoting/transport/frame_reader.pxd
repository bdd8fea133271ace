from libc.stdint cimport uint8_t


cdef class FrameReader:
    cdef object read_buffer     # of read_buffer.py; None where a lane reads
    cdef object pending
    cdef const uint8_t *shared  # the address of its bytes
    cdef public bint reading_paused
    """Whether reading is paused because the peer is ahead: it takes no frame then."""

    cdef int take(self, const uint8_t *data, Py_ssize_t available) except -1
    cdef Py_ssize_t take_frames(self, const uint8_t *data, Py_ssize_t available) except -1
    cdef int take_pending(self, object data, Py_ssize_t available) except -1
