from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.remoting.slices cimport Slice

# What a send carries.
cdef enum SendKind:
    SEND_SINGLE = 0
    SEND_BATCH = 1
    SEND_HALF = 2           # a message that waits for its commit: TRAN_MSG=true and PGROUP

# The properties of a send as they are to be stored, less what the broker adds, into `out`
# (PROPERTIES_MAX bytes); False where they ask for more than an ordinary append: Python decides.
# Pieces without name or value are dropped, as the reference's decoder drops them. A single
# message's WAIT is not stored. The tags code is taken on the way.
cdef bint stored_properties(const Slice *given, SendKind kind, bint sync_flush, uint8_t *out,
                            int32_t *length, int64_t *tags_code) noexcept nogil
