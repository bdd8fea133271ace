from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.base.slices cimport Slice
from congreve.records.record cimport Message

# What a send carries.
cdef enum SendKind:
    SEND_SINGLE = 0
    SEND_BATCH = 1
    SEND_HALF = 2           # a message that waits for its commit: TRAN_MSG=true and PGROUP

# The units of TIMER_DELIVER_MS, TIMER_DELAY_MS and TIMER_DELAY_SEC.
cdef enum TimeUnit:
    TIME_OF_DELIVERY        # ms since 1970
    TIME_FROM_NOW_MS
    TIME_FROM_NOW_S

# The requested delivery of a single message, as received; no data: not requested.
cdef struct DeliveryWish:
    Slice level             # of DELAY, which is then not among the stored properties
    Slice time
    TimeUnit unit
    bint in_order           # it has a sharding key
    Slice lite              # the lite topic of a single message
    int32_t priority        # which chooses the queue of a single message; -1: none

# Writes the properties of a send as they are stored, without those that the broker adds, to `out`
# (PROPERTIES_MAX bytes) and computes the tags code. False when they ask for more than an ordinary
# or a delayed append: Python decides. Pieces without name or value are dropped, as the reference's
# decoder drops them. WAIT is stored for batches, delayed and half messages, as in the reference.
# `group` is that of the send's header: Python decides about a half message of another group, and
# with `reserves` about properties that only brokers set.
cdef bint stored_properties(const Slice *given, SendKind kind, const Slice *group,
                            bint sync_flush, bint reserves, uint8_t *out, int32_t *length,
                            int64_t *tags_code, DeliveryWish *wish) noexcept nogil

# Writes the message's topic and queue as the properties from which records.restore reads them, with
# a separator before each (at most TARGET_MAX bytes); returns the end.
cdef uint8_t *put_target(uint8_t *out, const Message *message) noexcept nogil

cdef enum:
    TARGET_MAX = 192
