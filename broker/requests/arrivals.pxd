from libc.stdint cimport int32_t

from congreve.base.atomic cimport load_acquire_bits
from congreve.engine.queue.consume_queue cimport ConsumeQueue

# The queues that got an entry in one chunk of requests, and that have watchers or hold parked
# messages.

cdef enum:
    ARRIVALS_MAX = 64

cdef struct Arrival:
    void *queue                     # borrowed ConsumeQueue; topics do not change during a run
    bint parked                     # it holds parked messages, which the event loop delivers

cdef struct Arrivals:
    Arrival queues[ARRIVALS_MAX]
    int32_t count


# Add a queue with a new entry, if it is watched or holds parked messages; under the append lock.
# Returns whether the list is full.
cdef inline bint note_arrival(Arrivals *arrivals, void *queue, bint parked) noexcept nogil:
    cdef int32_t i
    if not parked and not load_acquire_bits(&(<ConsumeQueue> queue).watchers):
        return False
    for i in range(arrivals.count):
        if arrivals.queues[i].queue == queue:
            return False
    arrivals.queues[arrivals.count].queue = queue
    arrivals.queues[arrivals.count].parked = parked
    arrivals.count += 1
    return arrivals.count == ARRIVALS_MAX
