from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.base.slices cimport Slice

# A pop that takes records of a retry topic.
cdef struct RetryPop:
    Slice topic             # the one that the client asked for
    Slice group
    Slice broker_name
    int64_t start_offset    # of the first record
    int64_t pop_ms
    int64_t invisible_ms
    int32_t kind            # a PoppedFrom

# The most bytes by which a record grows.
cdef int64_t growth_of(const RetryPop *pop) noexcept nogil
# Writes the records with the topic that the client asked for and with their handles. Returns the
# end; NULL: the event loop has to do it.
cdef uint8_t *put_retried(uint8_t *out, const uint8_t *records, int64_t length,
                          const RetryPop *pop) noexcept nogil
