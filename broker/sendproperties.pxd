from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.records.record cimport Message
from congreve.remoting.slices cimport Slice

# What a send carries.
cdef enum SendKind:
    SEND_SINGLE = 0
    SEND_BATCH = 1
    SEND_HALF = 2           # a message that waits for its commit: TRAN_MSG=true and PGROUP

# How TIMER_DELIVER_MS, TIMER_DELAY_MS and TIMER_DELAY_SEC count.
cdef enum TimeUnit:
    TIME_OF_DELIVERY        # ms since 1970
    TIME_FROM_NOW_MS
    TIME_FROM_NOW_S

# When a single message wants to be delivered: values as they came, without data where not given.
cdef struct DeliveryWish:
    Slice level             # of DELAY, which is not among the stored properties then
    Slice time
    TimeUnit unit

# The properties of a send as they are to be stored, less what the broker adds, into `out`
# (PROPERTIES_MAX bytes); False where they ask for more than an ordinary append, or one for later:
# Python decides. Pieces without name or value are dropped, as the reference's decoder drops them. A
# single message's WAIT is not stored. The tags code is taken on the way.
cdef bint stored_properties(const Slice *given, SendKind kind, bint sync_flush, uint8_t *out,
                            int32_t *length, int64_t *tags_code, DeliveryWish *wish) noexcept nogil

# The message's topic and queue as the properties by which records.restore finds them again, with
# a separator before each (TARGET_MAX bytes); returns the end.
cdef uint8_t *put_target(uint8_t *out, const Message *message) noexcept nogil

cdef enum:
    TARGET_MAX = 192
