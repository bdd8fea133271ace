from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.base.byte_buffer cimport ByteBuffer
from congreve.base.slices cimport Slice
from congreve.broker.grpc.codecs.call_accounts cimport CallAccounts
from congreve.broker.grpc.codecs.hashed_names cimport HashedNames
from congreve.remoting.lanes.http2 cimport Call
from congreve.remoting.wire.frame cimport Frame, Header

# One message of a SendMessageRequest.
cdef struct SentMessage:
    Slice topic
    Slice properties            # of the protobuf message, from its first to its last byte
    Slice system
    Slice body
    Slice id
    Slice tag                   # no data: none
    Slice born_host
    Slice trace
    Slice lite                  # the lite topic
    Slice access_key            # of the account that has signed the call
    int64_t born_ms
    bint compressed
    int32_t text_bytes          # of user properties, tag and keys
    int32_t user_properties


cdef class SendCodec:
    cdef bytes template_bytes
    cdef Slice template
    cdef int64_t max_body_size
    cdef CallAccounts accounts  # None without access control
    cdef HashedNames reserved   # what users may not set

    # The parts of a CallCodec.
    cdef bint read(self, Call *call, ByteBuffer *frames) noexcept nogil
    cdef bint write(self, const Call *call, const Frame *frame, const Header *header,
                    ByteBuffer *messages) noexcept nogil

    cdef bint read_request(self, Slice request, SentMessage *message) noexcept nogil
    cdef bint read_message(self, Slice bytes, SentMessage *message) noexcept nogil
    cdef bint read_property(self, Slice entry, SentMessage *message, Slice *name,
                            Slice *value) noexcept nogil
    cdef bint read_system(self, SentMessage *message) noexcept nogil
    cdef uint8_t *put_properties(self, uint8_t *out, const SentMessage *message) noexcept nogil
    cdef uint8_t *put_frame(self, uint8_t *out, int32_t opaque,
                            const SentMessage *message) noexcept nogil
