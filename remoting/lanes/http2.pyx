"""HTTP/2 under the frames of a lane: the seam (docs/decisions/grpc-door.md).

Bytes of the peer become whole frames, and frames that answer become bytes for the peer. A build
without nghttp2 has this module and no sessions (remoting/http2).
"""

from libc.errno cimport ENOSYS

from congreve.base.byte_buffer cimport release


cdef class CallCodec:
    """Makes frames of calls, and messages of the frames that answer; this class leaves all calls to
    the loop.
    """

    def __dealloc__(self):
        release(&self.told)

    cdef bint read(self, Call *call, ByteBuffer *frames) noexcept nogil:
        return False

    cdef bint write(self, const Call *call, const Frame *frame, const Header *header,
                    ByteBuffer *messages) noexcept nogil:
        return True


cdef class Http2Sessions:
    """The sessions of one lane; only its thread calls them, without the interpreter's lock."""

    cdef Http2Session *begin(self, int64_t connection) noexcept nogil:
        return NULL

    cdef void end(self, Http2Session *session) noexcept nogil:
        pass

    cdef int receive(self, Http2Session *session, const uint8_t *data, int64_t length,
                     int64_t now_ms, ByteBuffer *frames) noexcept nogil:
        return ENOSYS

    cdef int answer(self, Http2Session *session, const uint8_t *frames,
                    int64_t length) noexcept nogil:
        return ENOSYS

    cdef bint awaits(self, const Http2Session *session, int32_t stream) noexcept nogil:
        return False

    cdef int reply(self, Http2Session *session, int32_t stream, const uint8_t *data,
                   int64_t length) noexcept nogil:
        return ENOSYS

    cdef int64_t next_bytes(self, Http2Session *session, uint8_t *data,
                            int64_t size) noexcept nogil:
        return -ENOSYS

    cdef void open_window(self, Http2Session *session) noexcept nogil:
        pass

    cdef void go_away(self, Http2Session *session) noexcept nogil:
        pass
