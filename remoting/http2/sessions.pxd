from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.base.byte_buffer cimport ByteBuffer
from congreve.remoting.http2.nghttp2 cimport (
    nghttp2_option,
    nghttp2_session,
    nghttp2_session_callbacks,
)
from congreve.remoting.lanes.http2 cimport (
    CALL_FIELDS,
    NOTE_MAX,
    Call,
    CallCodec,
    Http2Session,
    Http2Sessions,
)

# One call of a peer.
cdef struct Stream:
    int32_t id
    bint is_grpc                # its content type says so
    bint of_frames              # a frame answers it
    bint at_loop                # the loop has it
    bint closed                 # the peer sends no more
    bint told_closed            # the loop knows it
    bint begun                  # the headers of the answer were given to nghttp2
    bint ended                  # all of the answer is in `answer`
    bint deferred               # nghttp2 waits for more of `answer`
    bint in_partial             # it is in the list of incomplete messages
    uint8_t status              # of gRPC, for the trailers
    int32_t text_length
    uint8_t *text               # of the status, for the trailers; NULL: none
    int32_t field_at[CALL_FIELDS]       # where in `metadata`; 0: not sent
    int32_t field_length[CALL_FIELDS]
    uint8_t note[NOTE_MAX]      # of the codec
    int32_t note_length
    ByteBuffer metadata         # the fields of the call, as the loop gets them
    ByteBuffer message          # with the five bytes in front
    ByteBuffer answer           # messages with the five bytes in front of each
    int64_t since_ms            # when `message` began
    Stream *before              # in the list of incomplete messages, the oldest first
    Stream *after
    Stream *previous            # in the list of all
    Stream *next

# One connection.
cdef struct Session:
    Http2Session shown          # what lanes read of it; first, so that both have one address
    nghttp2_session *nghttp2
    void *owner                 # the NgHttp2Sessions
    int64_t connection
    int64_t now_ms
    int64_t unconsumed          # bytes for which the peer gets room later
    bint blocked
    ByteBuffer *frames          # of the current receive()
    Stream *streams
    Stream *oldest
    Stream *newest


cdef class NgHttp2Sessions(Http2Sessions):
    cdef nghttp2_session_callbacks *callbacks
    cdef nghttp2_option *option
    cdef CallCodec codec
    cdef int64_t message_max
    cdef ByteBuffer entry       # the data of an entry for the loop

    cdef void take_messages(self, Session *session, Stream *stream) noexcept nogil
    cdef void take_message(self, Session *session, Stream *stream, int64_t length) noexcept nogil
    cdef bint pass_call(self, Session *session, Stream *stream, int64_t length) noexcept nogil
    cdef void fill_call(self, Call *call, Stream *stream, int64_t length) noexcept nogil
