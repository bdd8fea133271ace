from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.base.byte_buffer cimport ByteBuffer
from congreve.base.slices cimport Slice
from congreve.broker.grpc.codecs.call_accounts cimport CallAccounts
from congreve.broker.grpc.codecs.hashed_names cimport HashedNames
from congreve.remoting.lanes.http2 cimport Call
from congreve.remoting.wire.frame cimport Frame, Header

cdef enum:
    HANDLE_PARTS = 9            # a PopHandle, and the place in the log

# What an AckMessageRequest or a ChangeInvisibleDurationRequest says about one message.
cdef struct Settled:
    Slice group
    Slice topic                 # that was asked for
    Slice handle
    Slice[HANDLE_PARTS] parts   # of the handle
    Slice entry                 # of an acknowledgement: its AckMessageEntry
    Slice access_key            # of the account that has signed the call
    int64_t invisible_ms        # of a change


cdef class SettleCodec:
    cdef HashedNames reserved   # topics and groups that need the rules in Python
    cdef CallAccounts accounts  # None without access control

    # The parts of a CallCodec.
    cdef bint read_ack(self, Call *call, ByteBuffer *frames) noexcept nogil
    cdef bint write_ack(self, const Call *call, const Header *header,
                        ByteBuffer *messages) noexcept nogil
    cdef bint read_change(self, Call *call, ByteBuffer *frames) noexcept nogil
    cdef bint write_change(self, const Call *call, const Header *header,
                           ByteBuffer *messages) noexcept nogil

    cdef bint is_ordinary(self, const Call *call, Settled *settled) noexcept nogil
    cdef uint8_t *begin_frame(self, ByteBuffer *frames, int32_t code,
                              const Settled *settled) noexcept nogil
