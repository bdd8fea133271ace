from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.remoting.lanes.connections cimport LaneConnection

cdef enum:
    BUCKETS = 8192          # of waiting pulls, by their queue
    TICKS = 1024            # of the wheel of due times, TICK_MS each
    TICK_MS = 16
    LOOP_WATCHER = 1        # the event loop's bit among the watchers of a queue

# The lists that a waiting pull is in.
cdef enum WaitingList:
    OF_QUEUE                # its bucket's, or that of pulls to look at
    OF_TICK
    OF_CONNECTION
    LISTS

cdef struct Link:
    WaitingPull *next
    WaitingPull **before    # what points to this pull; NULL: it is in no such list

# A pull that waits for a message; the frame of its request lies behind it.
cdef struct WaitingPull:
    Link[LISTS] links
    int64_t connection
    void *queue             # compared, never used: its topic may be gone
    int64_t offset          # moves past entries that do not match
    int64_t deadline_ms     # it is answered then in any case
    int64_t due_ms          # it is looked at then
    int64_t size            # of the frame
    uint8_t *frame


cdef class LanePolling:
    cdef WaitingPull *buckets[BUCKETS]
    cdef WaitingPull *wheel[TICKS]
    cdef WaitingPull *to_look_at
    cdef int64_t tick       # the wheel has turned up to here
    cdef readonly int64_t count
    """Waiting pulls."""

    # A new one with a copy of the request's frame, not waiting yet; NULL where too many wait, or
    # without memory.
    cdef WaitingPull *add(self, LaneConnection *connection, const uint8_t *frame, int64_t size,
                          int64_t now_ms, int64_t timeout_ms) noexcept nogil
    # Lets it wait for the queue.
    cdef void wait(self, WaitingPull *pull, void *queue) noexcept nogil
    # The pulls of this queue are to be looked at.
    cdef void arrived(self, void *queue) noexcept nogil
    # All pulls are to be looked at.
    cdef void all_soon(self) noexcept nogil
    # This one is to be looked at, now or at a time.
    cdef void look_soon(self, WaitingPull *pull) noexcept nogil
    cdef void look_at(self, WaitingPull *pull, int64_t due_ms) noexcept nogil
    # Those that are due are to be looked at.
    cdef void turn(self, int64_t now_ms) noexcept nogil
    # The next one to look at; NULL where there is none.
    cdef WaitingPull *next(self) noexcept nogil
    # How long the lane may sleep.
    cdef int sleep_ms(self, int64_t now_ms) noexcept nogil
    # Takes it out of all lists; free_pull() frees it.
    cdef void take_out(self, WaitingPull *pull) noexcept nogil
    # All pulls of the connection are gone.
    cdef void drop_connection(self, LaneConnection *connection) noexcept nogil


cdef void free_pull(WaitingPull *pull) noexcept nogil
