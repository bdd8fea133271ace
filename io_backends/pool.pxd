from libc.stdint cimport int64_t, uint8_t

from congreve.base.pthread cimport pthread_cond_t
from congreve.io_backends.backend cimport Backend, FileSegment
from congreve.io_backends.window cimport Window


cdef class PoolSegment(FileSegment):
    # Maps a buffer of the pool, and its file once that holds all of the buffer's bytes.
    #   released  the file is mapped again: another segment may use the buffer
    cdef bint released


# The data of an attached segment for the write thread, which runs without the GIL.
cdef struct Extent:
    uint8_t *data
    int64_t base
    int64_t end
    int64_t length          # of the mapping: whole pages
    const int64_t *written
    bint *released
    int fd
    Extent *next


cdef class PoolBackend(Backend):
    # Guarded by `lock`:
    #   first      attached segments in offset order, less those that left their buffers
    #   target     everything below is asked to become durable
    #   committed  everything below was written to the file
    #   stopping   the thread ends as soon as `target` is durable
    # With the GIL: `buffers` are (Window, weak reference to the segment that has it).
    cdef readonly int64_t limit
    """Buffers at most."""
    cdef readonly bint locked
    """Whether the buffers are locked in memory."""
    cdef readonly int64_t commit_interval_ms
    """Milliseconds between two commits (commitIntervalCommitLog)."""
    cdef readonly int64_t commit_least_pages
    """A commit writes so many 4 KiB pages at least (commitCommitLogLeastPages)."""
    cdef readonly int64_t commit_thorough_ms
    """Milliseconds until a commit writes fewer pages too (commitCommitLogThoroughInterval)."""
    cdef Extent *first
    cdef int64_t target
    cdef int64_t committed
    cdef bint stopping
    cdef pthread_cond_t wake
    cdef list buffers
    cdef object borrowing
    cdef list attached
    cdef object thread

    cdef Extent *extent_at(self, int64_t position) noexcept nogil
    cdef void write_groups(self) noexcept nogil
    cdef bint commit_due(self, int64_t last_ms, int64_t *upto) noexcept nogil
    cdef void write_until(self, int64_t upto, bint synced) noexcept nogil
    cdef void release_written(self) noexcept nogil
    cdef void pause(self) noexcept nogil
    cdef object show_buffer(self, PoolSegment segment)
    cdef object join(self, PoolSegment segment)
