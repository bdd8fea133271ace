from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.base.pthread cimport pthread_mutex_t

# Returns an eventfd that the caller closes. Raises OSError.
cdef int new_eventfd() except -1


cdef struct MailboxEntry:
    int32_t kind
    int32_t number
    int64_t connection
    uint8_t *data           # from malloc(); the receiver of the entry frees it
    int64_t size


cdef struct EntryRing:
    MailboxEntry *entries
    int64_t capacity
    int64_t first
    int64_t count
    int64_t bytes


cdef class Mailbox:
    # Entries for another thread, in order; only large ones of connections may be overtaken by
    # entries of others. `event_fd` becomes readable when an entry arrives in an empty mailbox.
    cdef readonly int event_fd
    """An eventfd that is readable when entries wait."""
    cdef pthread_mutex_t mutex
    cdef EntryRing ordinary
    cdef EntryRing late         # large entries of connections, and what must not overtake them
    cdef int64_t late_posted    # so many so far
    cdef int64_t count_max
    cdef int64_t bytes_max
    cdef bint idle              # the reader has taken all entries: the next one wakes it
    cdef bint refused           # an entry was refused since the reader's last take()

    # Appends an entry with a copy of `size` bytes. False if the mailbox is full or memory is short;
    # the limits do not apply to `forced` entries, which are few and small.
    cdef bint post(self, int32_t kind, int64_t connection, const uint8_t *data, int64_t size,
                   int32_t number, bint forced) noexcept nogil
    # The same for an entry of a connection: if it is large, entries of other connections may
    # overtake it. Those of one connection stay in order; `last_late` is the connection's own.
    cdef bint post_of(self, int32_t kind, int64_t connection, const uint8_t *data, int64_t size,
                      int32_t number, bint forced, int64_t *last_late) noexcept nogil
    # Takes up to `most` entries, and none after TURN_BYTES; returns their number. A late one is
    # always among them, if any waits. Sets `refused` if an entry was refused since the last call.
    cdef int64_t take(self, MailboxEntry *entries, int64_t most, bint *refused) noexcept nogil
    # How many entries wait.
    cdef int64_t waiting(self) noexcept nogil
    # Whether an entry that is not forced has room; notes that one was refused.
    cdef bint has_room(self, int64_t size) noexcept nogil
    cdef bint has_room_of(self, int64_t size, const int64_t *last_late) noexcept nogil
    cdef bint is_late(self, int64_t size, const int64_t *last_late) noexcept nogil
    cdef bint fits(self, int64_t size, bint late) noexcept nogil
