from libc.stdint cimport int64_t, uint8_t

from congreve.base.slices cimport Slice
from congreve.broker.quotas.quota_table cimport QuotaTable
from congreve.records.host cimport Host
from congreve.remoting.wire.fast_headers cimport SendHeader
from congreve.remoting.wire.frame cimport Header

cdef enum:
    REST_MS = 20        # the lane does not read a connection for so long after it refused a send
    JUDGED_MAX = 64     # more than the sends that are prepared at a time

# A send that was charged or refused; its body's place in the chunk says which one it is.
cdef struct JudgedSend:
    const uint8_t *body
    int64_t messages
    bint refused


cdef class SendQuota:
    cdef QuotaTable table
    cdef int64_t now_ns
    cdef JudgedSend[JUDGED_MAX] judged      # the last ones of the chunk, a ring
    cdef int64_t judged_count
    cdef bint limited                   # a send of the chunk was beyond its quota

    # Before the first frame of a chunk, at this time of the monotonic clock.
    cdef void begin_chunk(self, int64_t now_ns) noexcept nogil
    # Whether a quota of the send is used up; if not, it is charged. A send that is prepared again
    # gets the same answer.
    cdef bint refuses(self, const Header *header, const SendHeader *send, Slice body,
                      const Host *sender) noexcept nogil
    # Charges the end of a transaction as a message without bytes, and never refuses it: most ends
    # get no answer, so a client would not repeat a refused one.
    cdef void charge_end(self, const Header *header, const Host *sender) noexcept nogil
    # Takes the charge back: the Python handlers serve the send.
    cdef void cancel_charge(self, const Header *header, const SendHeader *send, Slice body,
                            const Host *sender) noexcept nogil
    cdef JudgedSend *find(self, Slice body) noexcept nogil

# The remark in the answer to a refused send.
cdef Slice busy_remark() noexcept nogil
