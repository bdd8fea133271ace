from libc.stdint cimport int64_t

from congreve.base.byte_buffer cimport ByteBuffer
from congreve.remoting.http2.nghttp2 cimport nghttp2_option, nghttp2_session_callbacks
from congreve.remoting.http2.streams cimport Session, Stream
from congreve.remoting.lanes.http2 cimport Call, CallCodec, Http2Sessions
from congreve.remoting.wire.frame cimport Frame, Header

cdef class NgHttp2Sessions(Http2Sessions):
    cdef nghttp2_session_callbacks *callbacks
    cdef nghttp2_option *option
    cdef CallCodec codec
    cdef int64_t message_max
    cdef ByteBuffer entry       # the data of an entry for the loop
    cdef ByteBuffer scratch     # for the headers of frames

    cdef void take_messages(self, Session *session, Stream *stream) noexcept nogil
    cdef void take_message(self, Session *session, Stream *stream, int64_t length) noexcept nogil
    cdef bint pass_call(self, Session *session, Stream *stream, int64_t length) noexcept nogil
    cdef bint write_answer(self, Session *session, Stream *stream, const Frame *frame,
                           const Header *header) noexcept nogil
    cdef void fill_call(self, Call *call, Stream *stream, int64_t length) noexcept nogil
