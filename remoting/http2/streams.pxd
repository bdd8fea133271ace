# The streams of sessions: their lists, and the headers of calls that are kept.
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp

from congreve.base.byte_buffer cimport ByteBuffer
from congreve.remoting.http2.nghttp2 cimport nghttp2_session
from congreve.remoting.lanes.http2 cimport CALL_FIELDS, CallField, Http2Session

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
    int64_t header_bytes
    int32_t text_length
    uint8_t *text               # of the status, for the trailers; NULL: none
    int32_t field_at[CALL_FIELDS]       # where in `metadata`; 0: not sent
    int32_t field_length[CALL_FIELDS]
    uint8_t kind                # of the codec, as the note
    uint8_t *note               # NULL: none
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
    int32_t idle_frames         # PRIORITY and empty DATA since the last message
    ByteBuffer *frames          # of the current receive()
    Stream *streams
    Stream *oldest
    Stream *newest


cdef inline bint is_name(const uint8_t *name, size_t length, const char *text,
                         size_t size) noexcept nogil:
    return length == size and memcmp(name, text, size) == 0


cdef inline int field_of(const uint8_t *name, size_t length) noexcept nogil:
    """The field of a header; CALL_FIELDS: it is not kept."""
    if is_name(name, length, b":path", 5):
        return CallField.PATH
    if is_name(name, length, b":authority", 10):
        return CallField.AUTHORITY
    if is_name(name, length, b"grpc-timeout", 12):
        return CallField.TIMEOUT
    if is_name(name, length, b"authorization", 13):
        return CallField.AUTHORIZATION
    if length < 13 or memcmp(name, <const char *> b"x-mq-", 5):
        return CallField.CALL_FIELDS
    if is_name(name, length, b"x-mq-client-id", 14):
        return CallField.CLIENT_ID
    if is_name(name, length, b"x-mq-language", 13):
        return CallField.LANGUAGE
    if is_name(name, length, b"x-mq-client-version", 19):
        return CallField.CLIENT_VERSION
    if is_name(name, length, b"x-mq-date-time", 14):
        return CallField.DATE_TIME
    return CallField.CALL_FIELDS


# A call of a peer, at the head of the session's streams; NULL without memory.
cdef Stream *new_stream(Session *session, int32_t id) noexcept nogil
cdef void free_stream(Session *session, Stream *stream) noexcept nogil
# Keeps what a codec wants to know of the call. False without memory.
cdef bint keep_note(Stream *stream, uint8_t kind, const uint8_t *note,
                    int32_t length) noexcept nogil
# Puts the stream into the list of incomplete messages, or removes it.
cdef void mark_partial(Session *session, Stream *stream) noexcept nogil
# Forgets what has come of a message.
cdef void drop_message(Session *session, Stream *stream) noexcept nogil
# Keeps what the loop or a codec reads of a call's headers. False for too many bytes of them.
cdef bint keep_header(Stream *stream, const uint8_t *name, size_t name_length,
                      const uint8_t *value, size_t length) noexcept nogil
