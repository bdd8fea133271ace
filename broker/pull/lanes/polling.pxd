from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.broker.quotas.quota_table cimport KINDS, Charged, QuotaEntry, QuotaTable
from congreve.remoting.lanes.connections cimport LaneConnection
from congreve.remoting.wire.frame cimport Frame, Header

cdef enum:
    BUCKETS = 8192          # of waiting pulls, by queue
    TICKS = 1024            # of TICK_MS each in the timing wheel
    TICK_MS = 16

# The lists that a waiting pull is in.
cdef enum WaitingList:
    OF_QUEUE                # the bucket's, or that of hidden pulls, or of pulls to check
    OF_TICK
    OF_CONNECTION
    LISTS

cdef struct Link:
    WaitingPull *next
    WaitingPull **before    # the pointer to this pull; NULL: the pull is not in this list

# One of the queues of a request that waits for several.
cdef struct Watch:
    Watch *next
    Watch **before          # the pointer to this watch
    void *queue             # only compared, as that of a pull
    WaitingPull *pull

# Requests of one kind that wait; `total` counts those of all kinds.
cdef struct WaitCounts:
    int64_t in_lanes
    int64_t on_loop
    WaitCounts *total

# What has happened to a pull so far (its flags).
cdef enum PullFlag:
    MAY_WAIT = 1            # for messages
    COMMITTED = 2           # its offset is committed
    METERED = 4             # its quota had room
    POLLED = 8              # it has waited for messages
    MUST_END = 16           # the loop has to answer it, or refuse to

# How far a pull has come. A mailbox entry with a pull, other than one that the loop has to answer,
# begins with it; its frame follows (broker/pull/progress.py).
cdef struct PullProgress:
    int64_t offset          # of the queue, after the entries that do not match; -1: the request's
    int64_t begun_ms        # when the request arrived, by the monotonic clock
    int64_t place           # what was read or repaired for it last: a physical offset for GET_COLD,
    int32_t status          # an offset of its queue for GET_DAMAGED
    int32_t flags

# A pull that waits; a copy of what it keeps of its frame (kept_size()) follows it in memory, with
# room for its progress before it.
cdef struct WaitingPull:
    Link[LISTS] links
    int64_t connection
    void *queue             # only compared: its topic may be deleted
    int64_t deadline_ms     # the pull is answered then in any case
    int64_t due_ms          # the pull is checked then
    PullProgress progress
    int64_t size            # of the frame
    uint8_t *frame
    bint has_place
    QuotaEntry *places[KINDS]      # in quotas, with `has_place`
    void *owner             # the LanePolling that it waits in
    Watch *watches          # of a request that waits for several queues, or NULL
    int32_t watch_count
    WaitCounts *counts      # of its kind; NULL: not counted


cdef class LanePolling:
    cdef QuotaTable quotas
    cdef WaitingPull *buckets[BUCKETS]
    cdef Watch *watches[BUCKETS]
    cdef WaitingPull *wheel[TICKS]
    cdef int64_t notices    # so far: that a queue has more, or that all must be checked
    cdef WaitingPull *hidden    # they wait for readers to see what their queues have
    cdef WaitingPull *to_check
    cdef int64_t tick       # the last tick that turn() has passed
    cdef readonly int64_t count
    """Waiting pulls."""
    cdef readonly int64_t size
    """Bytes of memory that they take."""
    cdef int64_t size_max

    # Makes a pull with a copy of what it keeps of its request, which does not wait yet; NULL if too
    # many or too large ones wait, or without memory.
    cdef WaitingPull *add(self, LaneConnection *connection, const Frame *frame,
                          const Header *header, const PullProgress *progress, int64_t now_ms,
                          int64_t timeout_ms) noexcept nogil
    # Takes a place in quotas for the pull; False if there is none.
    cdef bint take_place(self, WaitingPull *pull, const Charged *payers) noexcept nogil
    # Lets the pull wait for the queue.
    cdef void wait(self, WaitingPull *pull, void *queue) noexcept nogil
    # Lets a request wait for several queues, without a place among pulls, and counts it. False
    # without memory.
    cdef bint wait_for_all(self, WaitingPull *pull, int32_t count,
                           WaitCounts *counts) noexcept nogil
    cdef void add_watch(self, WaitingPull *pull, void *queue) noexcept nogil
    # Lets a request wait that has been checked, for the queues that it watches.
    cdef void rest(self, WaitingPull *pull) noexcept nogil
    # Lets the pull wait until readers see more of the queue.
    cdef void wait_hidden(self, WaitingPull *pull, void *queue) noexcept nogil
    # Moves the pulls of this queue to the list that next() reads.
    cdef void arrived(self, void *queue) noexcept nogil
    # Moves the pulls that wait until readers see more to this list.
    cdef void shown(self) noexcept nogil
    # Moves all pulls to this list.
    cdef void all_soon(self) noexcept nogil
    # The same, and the loop has to answer them.
    cdef void end_all(self) noexcept nogil
    # Moves this pull to the list, now or at a time.
    cdef void check_soon(self, WaitingPull *pull) noexcept nogil
    cdef void check_at(self, WaitingPull *pull, int64_t due_ms) noexcept nogil
    # Moves the pulls that are due to the list.
    cdef void turn(self, int64_t now_ms) noexcept nogil
    # Returns the next pull to check; NULL if there is none.
    cdef WaitingPull *next(self) noexcept nogil
    # Returns how long the lane may sleep, in ms.
    cdef int sleep_ms(self, int64_t now_ms) noexcept nogil
    # Removes the pull from all lists; free_pull() frees it.
    cdef void take_out(self, WaitingPull *pull) noexcept nogil
    # Frees all pulls of the connection.
    cdef void drop_connection(self, LaneConnection *connection) noexcept nogil


cdef void free_pull(WaitingPull *pull) noexcept nogil
