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
cdef int64_t TURN_BYTES = 1024 * 1024   # of entries, which one turn of the reader copies


cdef int new_eventfd() except -1:
    """An eventfd that the caller closes. Raises OSError."""
    cdef int fd = sockets.eventfd(0, sockets.EFD_NONBLOCK | sockets.EFD_CLOEXEC)
    if fd < 0:
        raise OSError(errno, os.strerror(errno))
    return fd


@cython.final
cdef class Mailbox:
    """Passes entries from one thread to another, in order, for compiled code (mailbox.pxd).

    It holds at most `count_max` entries and `bytes_max` bytes.
    """

    def __cinit__(self, int64_t count_max, int64_t bytes_max):
        self.event_fd = -1
        self.count_max = count_max
        self.bytes_max = bytes_max
        self.capacity = FIRST_CAPACITY
        self.idle = True
        self.entries = <MailboxEntry *> malloc(self.capacity * sizeof(MailboxEntry))
        if self.entries == NULL:
            raise MemoryError()
        pthread_mutex_init(&self.mutex, NULL)
        self.event_fd = new_eventfd()

    def __dealloc__(self):
        cdef int64_t i
        for i in range(self.count):
            free(self.entries[(self.first + i) % self.capacity].data)
        if self.entries != NULL:
            pthread_mutex_destroy(&self.mutex)
        free(self.entries)
        if self.event_fd >= 0:
            sockets.close_fd(self.event_fd)

    def __len__(self):
        return self.waiting()

    cdef bint post(self, int32_t kind, int64_t connection, const uint8_t *data, int64_t size,
                   int32_t number, bint forced) noexcept nogil:
        cdef MailboxEntry entry
        cdef bint wake = False
        cdef bint fits
        entry.kind, entry.number, entry.connection = kind, number, connection
        entry.size, entry.data = size, NULL
        if not forced and not self.has_room(size):  # before a copy of megabytes for nothing
            return False
        if size:
            entry.data = <uint8_t *> malloc(size)
            if entry.data == NULL:
                return False
            memcpy(entry.data, data, size)
        pthread_mutex_lock(&self.mutex)
        fits = forced or self.fits(size)
        if fits and (self.count < self.capacity or self.grow()):
            self.entries[(self.first + self.count) % self.capacity] = entry
            self.count += 1
            self.bytes += size
            wake, self.idle = self.idle, False
        else:
            fits = False
            self.refused = True
        pthread_mutex_unlock(&self.mutex)
        if wake:
            sockets.eventfd_write(self.event_fd, 1)
        if not fits:
            free(entry.data)
        return fits

    cdef int64_t take(self, MailboxEntry *entries, int64_t most, bint *refused) noexcept nogil:
        cdef uint64_t value
        cdef int64_t taken = 0
        cdef int64_t size = 0
        pthread_mutex_lock(&self.mutex)
        while taken < most and size < TURN_BYTES and self.count:
            entries[taken] = self.entries[self.first]
            size += entries[taken].size
            self.bytes -= entries[taken].size
            self.first = (self.first + 1) % self.capacity
            self.count -= 1
            taken += 1
        if self.count == 0:
            sockets.eventfd_read(self.event_fd, &value)
            self.idle = True
        refused[0], self.refused = self.refused, False
        pthread_mutex_unlock(&self.mutex)
        return taken

    cdef bint has_room(self, int64_t size) noexcept nogil:
        cdef bint found
        pthread_mutex_lock(&self.mutex)
        found = self.fits(size)
        self.refused |= not found
        pthread_mutex_unlock(&self.mutex)
        return found

    cdef bint fits(self, int64_t size) noexcept nogil:
        # An empty mailbox takes an entry of any size.
        return self.count == 0 or (
            self.count < self.count_max and self.bytes + size <= self.bytes_max
        )

    cdef int64_t waiting(self) noexcept nogil:
        cdef int64_t count
        pthread_mutex_lock(&self.mutex)
        count = self.count
        pthread_mutex_unlock(&self.mutex)
        return count

    cdef bint grow(self) noexcept nogil:
        cdef void *grown = double_ring(
            self.entries, sizeof(MailboxEntry), self.first, self.capacity
        )
        if grown == NULL:
            return False
        self.entries, self.first, self.capacity = <MailboxEntry *> grown, 0, 2 * self.capacity
        return True
