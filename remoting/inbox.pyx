"""The door between a connection's bytes and who takes its frames."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize

from congreve.remoting.frame cimport FRAME_BAD, FRAME_PARTIAL, Frame, FrameStatus, next_frame

from congreve.remoting.errors import FrameError


cdef class FrameSink:
    cdef Py_ssize_t take(self, object connection, const uint8_t *data,
                         Py_ssize_t available) except -1:
        raise NotImplementedError(f"{type(self).__name__} takes no frames")

    def feed(self, connection, buffer, Py_ssize_t end):
        cdef Py_buffer view
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            if not 0 <= end <= view.len:
                raise ValueError(f"{end} bytes of a buffer of {view.len}")
            return self.take(connection, <const uint8_t *> view.buf, end)
        finally:
            PyBuffer_Release(&view)


@cython.final
cdef class CommandSink(FrameSink):
    cdef Py_ssize_t take(self, object connection, const uint8_t *data,
                         Py_ssize_t available) except -1:
        cdef Frame frame
        cdef FrameStatus status
        cdef Py_ssize_t taken = 0
        while not connection.reading_paused:
            status = next_frame(data + taken, available - taken, &frame)
            if status == FRAME_PARTIAL:
                break
            if status == FRAME_BAD:
                head = data[taken:min(taken + 8, available)]
                raise FrameError(f"bytes that are no frame: {head.hex()}")
            connection.on_frame(PyBytes_FromStringAndSize(<const char *> frame.data, frame.size))
            taken += frame.size
        return taken
