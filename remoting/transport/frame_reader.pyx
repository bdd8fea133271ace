"""The reading half of a connection: it splits received bytes into frames."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize

from congreve.remoting.wire.frame cimport FRAME_BAD, FRAME_PARTIAL, Frame, FrameStatus, next_frame

from congreve.remoting.errors import FrameError
from congreve.remoting.transport.read_buffer import PendingBytes


cdef class FrameReader:
    """The reading half of a connection: the read callbacks of asyncio.BufferedProtocol, and the
    bytes that are not whole frames yet. A connection adds `on_frame`, `on_unframeable` and `rest`.
    Without a `read_buffer` it gets whole frames only, which a lane has read.
    (RocketMQ: NettyDecoder.)
    """

    def __init__(self, read_buffer):
        cdef Py_buffer buffer
        if read_buffer is None:
            return
        self.read_buffer = read_buffer
        PyObject_GetBuffer(read_buffer, &buffer, PyBUF_WRITABLE)
        self.shared = <const uint8_t *> buffer.buf
        # The view holds the bytes where they are.
        PyBuffer_Release(&buffer)

    def get_buffer(self, sizehint):
        """The memory that the event loop reads the next bytes into."""
        if self.pending is None:
            return self.read_buffer
        return self.pending.free_part(self.read_buffer)

    def buffer_updated(self, Py_ssize_t nbytes):
        """Take the whole frames of the `nbytes` that were read, and those before."""
        if self.pending is None:
            self.take(self.shared, nbytes)
        else:
            data, end = self.pending.arrived(self.read_buffer, nbytes)
            self.take_pending(data, end)

    def take_frame(self, bytes frame not None):
        """Take one whole frame, which a lane has read."""
        self.take(<const uint8_t *> PyBytes_AS_STRING(frame), len(frame))

    def on_frame(self, bytes frame):
        """Take one whole frame."""
        raise NotImplementedError(f"{type(self).__name__} takes no frames")

    def on_unframeable(self, error):
        """Handle a FrameError: the stream cannot be split into frames any more."""
        raise error

    def rest(self):
        """Stop reading what has arrived until the next turn of the loop."""
        raise NotImplementedError(f"{type(self).__name__} has no turns")

    def rest_for(self, seconds):
        """Stop reading for this time."""
        raise NotImplementedError(f"{type(self).__name__} has no timers")

    def read_pending(self):
        """After a pause, take the frames that arrived before it."""
        if self.pending is not None:
            data, end = self.pending.held()
            self.take_pending(data, end)

    def drop_pending(self):
        """Drop the received bytes."""
        self.pending = None

    cdef int take(self, const uint8_t *data, Py_ssize_t available) except -1:
        cdef Py_ssize_t taken
        try:
            taken = self.take_frames(data, available)
        except FrameError as error:
            self.drop_pending()
            self.on_unframeable(error)
            return 0
        if taken == available:
            self.drop_pending()
        elif taken or self.pending is None or not self.pending.has_own_buffer:
            # A frame that arrives in a buffer of its own stays there: a copy for each piece would
            # be megabytes for a byte.
            self.pending = PendingBytes(data[taken:available])
        return 0

    cdef Py_ssize_t take_frames(self, const uint8_t *data, Py_ssize_t available) except -1:
        """Pass whole frames to on_frame, none while reading pauses; returns the bytes taken."""
        cdef Frame frame
        cdef FrameStatus status
        cdef Py_ssize_t taken = 0
        while not self.reading_paused:
            status = next_frame(data + taken, available - taken, &frame)
            if status == FRAME_PARTIAL:
                break
            if status == FRAME_BAD:
                head = data[taken:min(taken + 8, available)]
                raise FrameError(f"bytes that are not a frame: {head.hex()}")
            self.on_frame(PyBytes_FromStringAndSize(<const char *> frame.data, frame.size))
            taken += frame.size
        return taken

    cdef int take_pending(self, object data, Py_ssize_t available) except -1:
        cdef Py_buffer view
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            return self.take(<const uint8_t *> view.buf, available)
        finally:
            PyBuffer_Release(&view)
