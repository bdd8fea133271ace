"""Records copied to new places of a log, without the GIL."""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy, memset

from congreve.base.cursor cimport store_i64
from congreve.records cimport layout
from congreve.records.record cimport encode_blank


def copy_records(const uint8_t[::1] records, const int64_t[::1] begins, const int64_t[::1] ends,
                 int64_t first, uint8_t[::1] target, int64_t physical_offset):
    """Copy records to `target`, from the one at index `first` on, as many as fit.

    Record i is [begins[i], ends[i]) of `records`. `target` is at `physical_offset` of the log,
    and each copy names its own place. Returns the index of the first record that was not copied,
    and the number of bytes that were.
    """
    cdef int64_t count = begins.shape[0]
    cdef int64_t free = target.shape[0]
    cdef int64_t used = 0
    cdef int64_t i = first
    cdef int64_t size
    with nogil:
        while i < count:
            size = ends[i] - begins[i]
            if used + size > free:
                break
            memcpy(&target[used], &records[begins[i]], size)
            store_i64(&target[used] + layout.AT_PHYSICAL_OFFSET, physical_offset + used)
            used += size
            i += 1
    return i, used


def put_blank(uint8_t[::1] target not None):
    """Fill the rest of a segment, 8 bytes or more, in which no record is."""
    memset(&target[0], 0, target.shape[0])
    encode_blank(&target[0], target.shape[0])
