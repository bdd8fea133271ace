from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.base.slices cimport Slice

# One BatchAck; its names are those of the text.
cdef struct BatchedAck:
    Slice group
    Slice topic             # the one that the client asked for
    int32_t kind            # a PoppedFrom
    int32_t queue_id
    int64_t start_offset
    int64_t pop_ms
    Slice bits              # in base64

# Where the reading of a body is.
cdef struct BatchReader:
    const uint8_t *at
    const uint8_t *end
    bint good               # so far
    bint inside             # the list of acknowledgements

# Begins to read a body of BATCH_ACK_MESSAGE.
cdef void begin_batch(BatchReader *reader, Slice body) noexcept nogil
# Reads the next acknowledgement. False at the end, where `good` says whether compiled code can read
# the body: Python reads every other one.
cdef bint next_batched(BatchReader *reader, BatchedAck *ack) noexcept nogil
# Decodes the 4 digits of base64 at this index; returns the number of bytes, -1 for other text.
cdef int32_t bits_at(Slice text, int32_t index, uint8_t *bits) noexcept nogil
