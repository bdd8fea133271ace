"""The door between a connection's bytes and who takes its frames."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize

from congreve.remoting.frame cimport FRAME_BAD, FRAME_PARTIAL, Frame, FrameStatus, next_frame

from congreve.remoting.errors import FrameError
from congreve.remoting.readbuffer import Stash


cdef class FrameSink:
    cdef Py_ssize_t take(self, FrameReader connection, const uint8_t *data,
                         Py_ssize_t available) except -1:
        raise NotImplementedError(f"{type(self).__name__} takes no frames")


@cython.final
cdef class CommandSink(FrameSink):
    cdef Py_ssize_t take(self, FrameReader connection, const uint8_t *data,
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


cdef class FrameReader:
    def __init__(self, FrameSink sink not None, read_buffer, poll=None):
        cdef Py_buffer buffer
        self.sink = sink
        self.read_buffer = read_buffer
        self.poll = poll
        self.active = True
        self.view = read_buffer.view
        PyObject_GetBuffer(self.view, &buffer, PyBUF_WRITABLE)
        self.shared = <const uint8_t *> buffer.buf
        # The view holds the bytes where they are.
        PyBuffer_Release(&buffer)

    def get_buffer(self, sizehint):
        if self.stash is None:
            return self.view
        return self.stash.room(self.read_buffer)

    def buffer_updated(self, Py_ssize_t nbytes):
        self.active = True
        if self.stash is None:
            self.take(self.shared, nbytes)
        else:
            data, end = self.stash.arrived(self.read_buffer, nbytes)
            self.take_stashed(data, end)
        if self.poll is not None:
            self.poll.chunk_served(nbytes)

    def on_frame(self, bytes frame):
        raise NotImplementedError(f"{type(self).__name__} takes no frames")

    def on_unframeable(self, error):
        raise error

    def read_stash(self):
        if self.stash is not None:
            data, end = self.stash.held()
            self.take_stashed(data, end)

    def drop_stash(self):
        self.stash = None

    cdef int take(self, const uint8_t *data, Py_ssize_t available) except -1:
        cdef Py_ssize_t taken
        try:
            taken = self.sink.take(self, data, available)
        except FrameError as error:
            self.stash = None
            self.on_unframeable(error)
            return 0
        self.stash = None if taken == available else Stash(data[taken:available])
        return 0

    cdef int take_stashed(self, object data, Py_ssize_t available) except -1:
        cdef Py_buffer view
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            return self.take(<const uint8_t *> view.buf, available)
        finally:
            PyBuffer_Release(&view)
