from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from congreve.engine.queue.queue_entries cimport QueueEntries
from congreve.engine.queue.queue_files cimport WritableMappings
from congreve.io_backends.mapping cimport Mapping


cdef class ConsumeQueue(QueueEntries):
    # One queue of one topic, with its writer.
    #   free_entries  entries that put() may still append before make_room() must be called
    #   next   where the next entry goes; NULL when free_entries is 0
    cdef int64_t free_entries
    cdef int64_t reserved       # disk space is reserved for the entries below
    cdef int64_t wanted         # entries that the next make_room() reserves, for a batch
    cdef uint8_t *next
    cdef readonly uint64_t watchers
    """Readers that wait for the next entry, a bit each (engine/log/watch.pyx)."""
    cdef int64_t max_physical   # end of the last real entry in the log, 0 without one
    cdef readonly int64_t put_bytes
    """Bytes of the records whose entries were put here since the start."""
    cdef int64_t flushed        # entries below are on disk
    # Checksums of its files, the last one up to entry `summed`; None: they must be computed again.
    cdef public list sums
    """CRC-32 of the bytes of each file, the last one up to entry `summed`; None: not known."""
    cdef public int64_t summed
    """The entry up to which the CRC-32 of the last file counts."""
    cdef public set unchecked
    """Numbers of the files that were not compared with their CRC-32 so far; None: of no file."""
    cdef readonly bint has_more
    """Whether load() found data after the end that it was given."""
    cdef WritableMappings writable  # the queues that are mapped for writing,
    cdef bint counted           # among them this one,
    cdef int64_t max_seen       # which had its end here when evict() last looked at it
    cdef Mapping ahead          # a later file that make_room() mapped for a batch, or the first one
    cdef int64_t ahead_base
    cdef object making          # the lock of the thread that makes a file

    # Appends one entry; the caller has made sure that free_entries > 0. One writer.
    cdef void put(self, int64_t physical_offset, int32_t size, int64_t tags_code) noexcept nogil
    # Opens a new file, or reserves the next part of this one: free_entries > 0 afterwards, and disk
    # blocks are reserved for `wanted` entries, so that no append among them finds the disk full.
    # Raises BackendError.
    cpdef make_room(self)
    cdef reserve_upto(self, int64_t offset)
    cdef Mapping file_for(self, int64_t base)
    # Unmaps the newest file; the next make_room() maps it again. For the one writer.
    cdef void unmap_newest(self)
    # Writes the entry over filler at the queue's end; False if something else has its place.
    cdef bint replace_filler(self, int64_t queue_offset, int64_t physical_offset, int32_t size,
                             int64_t tags_code) except -1
    # Adds the entry of a record that recovery found in the log; True when an entry was added.
    cpdef bint append(self, int64_t queue_offset, int64_t physical_offset, int32_t size,
                      int64_t tags_code) except -1
