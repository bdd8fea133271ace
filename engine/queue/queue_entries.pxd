from libc.stdint cimport int32_t, int64_t
from congreve.engine.queue.queue_files cimport QueueFiles
from congreve.io_backends.mapping cimport Mapping


cdef class QueueEntries:
    # The entries [min_offset, max_offset) of one queue of one topic, in fixed-size files.
    # Bases are byte offsets, everything else counts entries.
    cdef readonly str topic
    """Name of the topic."""
    cdef readonly int32_t queue_id
    """Number of the queue in its topic."""
    cdef int64_t min_offset
    cdef int64_t max_offset
    cdef readonly int64_t file_size
    """Bytes of each file."""
    cdef QueueFiles on_disk
    cdef Mapping active         # the file that is mapped for writing
    cdef int64_t active_base

    # Reads entry `offset` into the three; False when outside [min_offset, max_offset).
    cdef bint entry(self, int64_t offset, int64_t *physical_offset, int32_t *size,
                    int64_t *tags_code) except? -1
    # Whether entry `offset` names this record; False also where it is in none but the newest file.
    cdef bint names_lately(self, int64_t offset, int64_t physical_offset) noexcept nogil
    # Where the file with this base is mapped; None when there is no such file.
    cdef Mapping mapping_at(self, int64_t base)
    # First entry of the first file after the one that holds `offset`.
    cdef int64_t next_file_offset(self, int64_t offset)
    # First entry of a record that ends after `physical_offset`, at or before `stop`; the search
    # begins there, because few entries are behind it.
    cdef int64_t end_before(self, int64_t physical_offset, int64_t stop) except -1
    cdef int64_t _next_record(self, int64_t offset, int64_t end, int64_t *physical_offset,
                              int32_t *size) except -1
