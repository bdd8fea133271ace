from libc.stdint cimport uint8_t


cdef class FrameSink:
    # Takes frames from a connection. take() is given all bytes at hand, consumes whole frames and
    # returns how many bytes that were; it raises FrameError where the stream cannot be framed.
    # The bytes are the reader's again as soon as it returns.
    cdef Py_ssize_t take(
        self, object connection, const uint8_t *data, Py_ssize_t available
    ) except -1
