from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.base.byte_buffer cimport ByteBuffer
from congreve.base.clock cimport Clock
from congreve.base.slices cimport Slice
from congreve.broker.grpc.codecs.call_accounts cimport CallAccounts
from congreve.broker.grpc.codecs.hashed_names cimport HashedNames
from congreve.broker.grpc.codecs.messages cimport ReceivedMessages
from congreve.remoting.lanes.http2 cimport Call
from congreve.remoting.wire.frame cimport Frame, Header

# A ReceiveMessageRequest.
cdef struct Receive:
    Slice group
    Slice topic
    Slice expression
    Slice access_key            # of the account that has signed the call
    int32_t batch_size
    int64_t invisible_ms        # -1: not given
    int64_t poll_ms
    bint is_sql
    bint renewed


cdef class ReceiveCodec:
    cdef HashedNames reserved   # topics and groups that need the rules in Python
    cdef HashedNames ordered    # groups that get messages in their order
    cdef CallAccounts accounts  # None without access control
    cdef ReceivedMessages received
    cdef Clock clock
    cdef int64_t renewed_ms
    cdef ByteBuffer note        # of the current call

    # The parts of a CallCodec. write() adds to `told` what a client that renews has received.
    cdef bint read(self, Call *call, ByteBuffer *frames) noexcept nogil
    cdef bint write(self, const Call *call, const Frame *frame, const Header *header,
                    ByteBuffer *messages, ByteBuffer *told) noexcept nogil

    cdef bint read_request(self, Slice request, Receive *receive) noexcept nogil
    cdef bint read_topic(self, Slice queue, Slice *name) noexcept nogil
    cdef bint is_ordinary(self, const Call *call, Receive *receive) noexcept nogil
    cdef bint keep_note(self, const Call *call, const Receive *receive) noexcept nogil
    cdef bint put_frame(self, ByteBuffer *frames, const Call *call,
                        const Receive *receive) noexcept nogil
    cdef bint tell(self, const Call *call, const Header *header,
                   ByteBuffer *told) noexcept nogil
