from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.engine.queue.consume_queue cimport ConsumeQueue
from congreve.records.record cimport Message

# Puts the entries of a batch whose records are in the log, from `physical_offset` on; `element`
# has the properties of the batch, which each of its messages gets. False if the queue has no space
# for the next entry.
cdef bint put_batch(ConsumeQueue queue, Message *element, const uint8_t *batch, int32_t length,
                    int64_t physical_offset) noexcept nogil
