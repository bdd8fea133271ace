from libc.stdint cimport int64_t, uint8_t

from congreve.base.pthread cimport pthread_cond_t
from congreve.io_backends.backend cimport Backend, FileSegment


cdef class MappedSegment(FileSegment):
    cdef int file   # opened when it is asked for; -1 before


# The data of an attached segment for the flush thread, which runs without the GIL.
cdef struct Extent:
    uint8_t *data
    int64_t base
    int64_t end
    Extent *next


cdef class MmapBackend(Backend):
    # Appended bytes live in the page cache; one thread syncs the dirty range, group by group,
    # another populates fresh pages ahead of the writer. Guarded by `lock`:
    #   first     attached segments in offset order, less those that are durable to their end
    #   target    everything below is asked for
    #   asleep    the thread waits for `wake`
    #   stopping  it ends as soon as `target` is reached
    #   position  how far appends are; pages below `prefaulted` are in place already
    #   resting   the other thread waits for `approach`
    # Only that thread uses `forgotten`: pages below it are no longer mapped.
    # `attached` needs the GIL: the segments of the extents, so that they stay mapped.
    cdef Extent *first
    cdef int64_t target
    cdef bint asleep
    cdef bint stopping
    cdef pthread_cond_t wake
    cdef int64_t position
    cdef int64_t prefaulted
    cdef int64_t forgotten
    cdef bint resting
    cdef pthread_cond_t approach
    cdef readonly int64_t prefault
    """Bytes of fresh pages ready in front of the writer."""
    cdef list attached
    cdef list threads

    cdef Extent *next_extent(self) noexcept nogil
    cdef void sync_groups(self) noexcept nogil
    cdef Extent *last_extent(self) noexcept nogil
    cdef void prefault_pages(self) noexcept nogil
    cdef void forget_behind(self, uint8_t *data, int64_t base, int64_t position) noexcept nogil
