from libc.stdint cimport uint8_t


cdef class FrameReader


cdef class FrameSink:
    # Takes frames from a connection. take() gets all received bytes, consumes whole frames and
    # returns how many bytes that were; it raises FrameError if the stream cannot be framed.
    # The reader may overwrite the bytes as soon as take() returns.
    cdef Py_ssize_t take(
        self, FrameReader connection, const uint8_t *data, Py_ssize_t available
    ) except -1


cdef class FrameReader:
    cdef FrameSink sink
    cdef object read_buffer     # of read_buffer.py; None where a lane reads
    cdef object stash
    cdef const uint8_t *shared  # the address of its bytes
    cdef public bint reading_paused
    """Whether reading is paused because the peer is ahead: a sink takes no frame then."""

    cdef int take(self, const uint8_t *data, Py_ssize_t available) except -1
    cdef int take_stashed(self, object data, Py_ssize_t available) except -1
