from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.base.byte_buffer cimport ByteBuffer
from congreve.base.slices cimport Slice
from congreve.remoting.lanes.mailbox cimport Mailbox
from congreve.remoting.wire.byte_text cimport put_i32
from congreve.remoting.wire.frame cimport Frame, Header

cdef enum:
    PREFIX = 5                  # bytes in front of a message: whether it is compressed, its length

# What clients say about a call beside its message (call.py).
cdef enum CallField:
    PATH = 0
    AUTHORITY
    TIMEOUT
    CLIENT_ID
    LANGUAGE
    CLIENT_VERSION
    DATE_TIME
    AUTHORIZATION
    CALL_FIELDS                 # their number

# One call; its slices are valid during the call of the codec.
cdef struct Call:
    int32_t stream              # the opaque of its frames
    Slice fields[CALL_FIELDS]   # no data: the client did not send it
    Slice message
    uint8_t kind                # and `note`: what read() wants to know in write()
    Slice note


# What a lane reads of a session. The bytes are of this connection alone.
cdef struct Http2Session:
    int64_t calls               # whole messages so far
    int64_t held                # bytes of messages that are not complete
    int64_t unsent              # bytes of answers that were not written yet
    int64_t partial_since_ms    # when the oldest incomplete message began; 0: there is none
    bint finished               # nothing more will be read or written


# Writes what is in front of a message.
cdef inline void put_prefix(uint8_t *out, int64_t length) noexcept nogil:
    out[0] = 0
    put_i32(out + 1, <int32_t> length)


cdef class CallCodec:
    cdef ByteBuffer told        # what write() tells the loop about the call
    # Appends the frame that serves the call, with its stream as the opaque; False: it is for the
    # loop, and `frames` is unchanged.
    cdef bint read(self, Call *call, ByteBuffer *frames) noexcept nogil
    # Appends the messages that answer the call, with their prefixes, from the frame that answers
    # its own. False without memory.
    cdef bint write(self, const Call *call, const Frame *frame, const Header *header,
                    ByteBuffer *messages) noexcept nogil


cdef class Http2Sessions:
    cdef Mailbox to_loop        # the lane's, which sets it
    # Begins the server's side of a session of the connection with this id; NULL without memory.
    cdef Http2Session *begin(self, int64_t connection) noexcept nogil
    cdef void end(self, Http2Session *session) noexcept nogil
    # Takes what the peer has sent. Calls become frames, which are appended to `frames`, or entries
    # for the loop. The peer gets no room for more before open_window(). Returns 0 or the errno.
    cdef int receive(self, Http2Session *session, const uint8_t *data, int64_t length,
                     int64_t now_ms, ByteBuffer *frames) noexcept nogil
    # Takes whole frames that answer calls. Returns 0 or the errno.
    cdef int answer(self, Http2Session *session, const uint8_t *frames,
                    int64_t length) noexcept nogil
    # Whether the peer waits for a frame that answers the call.
    cdef bint awaits(self, const Http2Session *session, int32_t stream) noexcept nogil
    # Takes what the loop replies to a call. Returns 0 or the errno.
    cdef int reply(self, Http2Session *session, int32_t stream, const uint8_t *data,
                   int64_t length) noexcept nogil
    # Writes bytes for the peer, at most `size`; returns how many, 0 if there is nothing to send
    # now, or the negative errno. `size` is 64 KiB or more.
    cdef int64_t next_bytes(self, Http2Session *session, uint8_t *data, int64_t size) noexcept nogil
    # Gives the peer room again for what it has sent.
    cdef void open_window(self, Http2Session *session) noexcept nogil
    # Tells the peer to begin no further call.
    cdef void go_away(self, Http2Session *session) noexcept nogil
