"""Mailboxes between a lane's thread and the event loop."""

cimport cython
from libc.errno cimport errno
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from congreve.base.byte_buffer cimport double_ring
from congreve.base.pthread cimport (
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from congreve.remoting.lanes cimport sockets

import os

cdef int64_t FIRST_CAPACITY = 1024
cdef int64_t FIRST_LATE = 16
cdef int64_t TURN_BYTES = 1024 * 1024   # of entries, which one turn of the reader copies
cdef int64_t LATE_BYTES = 128 * 1024    # of late ones: those that arrive meanwhile wait for them
cdef int64_t LARGE = 4 * 1024           # bytes of an entry that others may overtake


cdef int new_eventfd() except -1:
    """An eventfd that the caller closes. Raises OSError."""
    cdef int fd = sockets.eventfd(0, sockets.EFD_NONBLOCK | sockets.EFD_CLOEXEC)
    if fd < 0:
        raise OSError(errno, os.strerror(errno))
    return fd


cdef bint begin_ring(EntryRing *ring, int64_t capacity) noexcept nogil:
    ring.entries = <MailboxEntry *> malloc(capacity * sizeof(MailboxEntry))
    ring.capacity = capacity
    return ring.entries != NULL


cdef void end_ring(EntryRing *ring) noexcept nogil:
    cdef int64_t i
    for i in range(ring.count):
        free(ring.entries[(ring.first + i) % ring.capacity].data)
    free(ring.entries)


cdef bint append(EntryRing *ring, const MailboxEntry *entry) noexcept nogil:
    """False without memory."""
    cdef void *grown
    if ring.count == ring.capacity:
        grown = double_ring(ring.entries, sizeof(MailboxEntry), ring.first, ring.capacity)
        if grown == NULL:
            return False
        ring.entries, ring.first = <MailboxEntry *> grown, 0
        ring.capacity *= 2
    ring.entries[(ring.first + ring.count) % ring.capacity] = entry[0]
    ring.count += 1
    ring.bytes += entry.size
    return True


cdef int64_t take_some(EntryRing *ring, MailboxEntry *entries, int64_t most,
                       int64_t bytes_most) noexcept nogil:
    """Take up to `most` entries, and none after `bytes_most`."""
    cdef int64_t taken = 0
    cdef int64_t size = 0
    while taken < most and size < bytes_most and ring.count:
        entries[taken] = ring.entries[ring.first]
        size += entries[taken].size
        ring.first = (ring.first + 1) % ring.capacity
        ring.count -= 1
        taken += 1
    ring.bytes -= size
    return taken


@cython.final
cdef class Mailbox:
    """Passes entries from one thread to another, in order, for compiled code (mailbox.pxd).

    It holds at most `count_max` entries and `bytes_max` bytes.
    """

    def __cinit__(self, int64_t count_max, int64_t bytes_max):
        self.event_fd = -1
        self.count_max = count_max
        self.bytes_max = bytes_max
        self.idle = True
        pthread_mutex_init(&self.mutex, NULL)
        if not begin_ring(&self.ordinary, FIRST_CAPACITY) or not begin_ring(&self.late, FIRST_LATE):
            raise MemoryError()
        self.event_fd = new_eventfd()

    def __dealloc__(self):
        end_ring(&self.ordinary)
        end_ring(&self.late)
        pthread_mutex_destroy(&self.mutex)
        if self.event_fd >= 0:
            sockets.close_fd(self.event_fd)

    def __len__(self):
        return self.waiting()

    cdef bint post(self, int32_t kind, int64_t connection, const uint8_t *data, int64_t size,
                   int32_t number, bint forced) noexcept nogil:
        return self.post_of(kind, connection, data, size, number, forced, NULL)

    cdef bint post_of(self, int32_t kind, int64_t connection, const uint8_t *data, int64_t size,
                      int32_t number, bint forced, int64_t *last_late) noexcept nogil:
        cdef MailboxEntry entry
        cdef bint wake = False
        cdef bint late, fits
        entry.kind, entry.number, entry.connection = kind, number, connection
        entry.size, entry.data = size, NULL
        if not forced and not self.has_room_of(size, last_late):  # before copying megabytes
            return False
        if size:
            entry.data = <uint8_t *> malloc(size)
            if entry.data == NULL:
                return False
            memcpy(entry.data, data, size)
        pthread_mutex_lock(&self.mutex)
        late = self.is_late(size, last_late)
        fits = (forced or self.fits(size, late)) and append(
            &self.late if late else &self.ordinary, &entry
        )
        if fits:
            wake, self.idle = self.idle, False
            if late:
                self.late_posted += 1
                last_late[0] = self.late_posted
        else:
            self.refused = True
        pthread_mutex_unlock(&self.mutex)
        if wake:
            sockets.eventfd_write(self.event_fd, 1)
        if not fits:
            free(entry.data)
        return fits

    cdef int64_t take(self, MailboxEntry *entries, int64_t most, bint *refused) noexcept nogil:
        cdef uint64_t value
        cdef int64_t taken
        pthread_mutex_lock(&self.mutex)
        taken = take_some(&self.ordinary, entries, most - (self.late.count > 0), TURN_BYTES)
        taken += take_some(&self.late, entries + taken, most - taken, LATE_BYTES)
        if self.ordinary.count + self.late.count == 0:
            sockets.eventfd_read(self.event_fd, &value)
            self.idle = True
        refused[0], self.refused = self.refused, False
        pthread_mutex_unlock(&self.mutex)
        return taken

    cdef bint has_room(self, int64_t size) noexcept nogil:
        return self.has_room_of(size, NULL)

    cdef bint has_room_of(self, int64_t size, const int64_t *last_late) noexcept nogil:
        cdef bint found
        pthread_mutex_lock(&self.mutex)
        found = self.fits(size, self.is_late(size, last_late))
        self.refused |= not found
        pthread_mutex_unlock(&self.mutex)
        return found

    cdef bint is_late(self, int64_t size, const int64_t *last_late) noexcept nogil:
        """Whether an entry is large, or must not overtake a late one that waits."""
        return last_late != NULL and (
            size > LARGE or last_late[0] > self.late_posted - self.late.count
        )

    cdef bint fits(self, int64_t size, bint late) noexcept nogil:
        # Late entries leave a quarter to others. An empty mailbox takes an entry of any size.
        cdef int64_t count = self.ordinary.count + self.late.count
        cdef int64_t size_all = self.ordinary.bytes + self.late.bytes + size
        cdef int64_t parts = 3 if late else 4
        return count == 0 or (
            count < self.count_max * parts // 4 and size_all <= self.bytes_max * parts // 4
        )

    cdef int64_t waiting(self) noexcept nogil:
        cdef int64_t count
        pthread_mutex_lock(&self.mutex)
        count = self.ordinary.count + self.late.count
        pthread_mutex_unlock(&self.mutex)
        return count
