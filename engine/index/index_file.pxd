from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.io_backends.mapping cimport Mapping


cdef class IndexFile:
    # One hash index. Entry numbers begin at 1; `count` is the next one, `capacity` the first that
    # does not fit. One thread puts, others may read: count moves after the entry is complete.
    cdef readonly str path
    """Path of the file."""
    cdef readonly int32_t slots
    """Number of hash slots (maxHashSlotNum)."""
    cdef readonly int32_t capacity
    """The first entry number that does not fit (maxIndexNum)."""
    cdef readonly int32_t count
    """Number of the next entry; 1 in an empty file."""
    cdef object files           # FileSystem
    cdef Mapping mapping
    cdef uint8_t *entries
    cdef int32_t reserved       # disk space is reserved for the entry numbers below it

    cdef reserve_head(self, int64_t head)
    cdef uint8_t *slot_of(self, int32_t key_hash) noexcept nogil
    cdef int64_t begin(self) noexcept nogil
    # Prefetches the memory that put() of this hash will access.
    cdef void expect(self, int32_t key_hash) noexcept nogil
    # Adds one entry; the caller ensures that count < min(capacity, reserved).
    cdef void put(self, int32_t key_hash, int64_t physical_offset,
                  int64_t store_timestamp) noexcept nogil
