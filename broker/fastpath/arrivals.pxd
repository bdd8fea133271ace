from libc.stdint cimport int32_t

# The watched queues that got an entry in one chunk of requests.

cdef enum:
    ARRIVALS_MAX = 64

cdef struct Arrivals:
    void *queues[ARRIVALS_MAX]      # borrowed ConsumeQueues; topics do not change during a run
    int32_t count


# Remember a queue; returns whether the list is full.
cdef inline bint note_arrival(Arrivals *arrivals, void *queue) noexcept nogil:
    cdef int32_t i
    for i in range(arrivals.count):
        if arrivals.queues[i] == queue:
            return False
    arrivals.queues[arrivals.count] = queue
    arrivals.count += 1
    return arrivals.count == ARRIVALS_MAX
