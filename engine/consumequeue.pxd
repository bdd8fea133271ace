from libc.stdint cimport int32_t, int64_t, uint8_t
from congreve.engine.queuefiles cimport QueueFiles
from congreve.io_backends.mapping cimport Mapping


cdef class ConsumeQueue:
    # One queue of one topic: entries [min_offset, max_offset) in fixed-size files.
    #   room   entries that put() may still append before make_room() must be called
    #   next   where the next entry goes; NULL when room is 0
    #   watched  somebody wants to be told of the next entry (held pulls); put() never clears it
    # Bases are byte offsets, everything else counts entries.
    cdef readonly str topic
    cdef readonly int32_t queue_id
    cdef int64_t min_offset
    cdef int64_t max_offset
    cdef int64_t room
    cdef int64_t reserved       # entries below have room on disk
    cdef int64_t wanted         # entries that the next make_room() is to reserve, for a batch
    cdef uint8_t *next
    cdef public bint watched
    cdef readonly int64_t file_size
    cdef int64_t max_physical   # end of the last real entry in the log, 0 without one
    cdef int64_t flushed        # entries below are on disk
    cdef QueueFiles on_disk
    cdef Mapping active         # the file that next points into
    cdef int64_t active_base
    cdef Mapping ahead          # a later file that make_room() mapped for a batch
    cdef int64_t ahead_base

    # Appends one entry; the caller has made sure that room > 0. One writer.
    cdef void put(self, int64_t physical_offset, int32_t size, int64_t tags_code) noexcept nogil
    # A new file, or the next reserved stretch of this one, so that room > 0 and the disk has room
    # for `wanted` entries: the way through them meets no full disk. BackendError.
    cpdef make_room(self)
    cdef reserve_upto(self, int64_t offset)
    cdef Mapping file_for(self, int64_t base)
    # What recovery does with a record found in the log: True when an entry was appended.
    cpdef bint append(self, int64_t queue_offset, int64_t physical_offset, int32_t size,
                      int64_t tags_code) except -1
    # Reads entry `offset` into the three; False when outside [min_offset, max_offset).
    cdef bint entry(self, int64_t offset, int64_t *physical_offset, int32_t *size,
                    int64_t *tags_code) except? -1
    # Where the file with this base is mapped; None when there is no such file.
    cdef Mapping mapping_at(self, int64_t base)
    # First entry of the first file behind the one that holds `offset`.
    cdef int64_t next_file_offset(self, int64_t offset)
    cdef int64_t _next_record(self, int64_t offset, int64_t end, int64_t *physical_offset,
                              int32_t *size) except -1
