from libc.stdint cimport int64_t, uint8_t


cdef class Segment:
    # One fixed-size file of the commit log, as memory.
    #   data     readable in [0, written) by anyone, writable in [written, size) by the one writer
    #   written  bytes appended; the writer stores it after the bytes, other threads load it
    # What has become durable is known to the backend, in physical offsets.
    cdef readonly str path
    cdef readonly int64_t base_offset
    cdef readonly int64_t size
    cdef uint8_t *data
    cdef int64_t written


cdef class Backend:
    # Owns durability of the commit log's segments.
    #   durable   every byte below this physical offset survives a power cut; never goes back
    #   failure   0, or the errno of the first write or sync that failed: then nothing more is
    #             ever called durable
    #   event_fd  an eventfd, readable when `durable` or `failure` moved; the reader resets it
    cdef readonly int event_fd
    cdef int64_t durable
    cdef int failure

    # Asks that all below `upto` becomes durable; never blocks. Asking again while a group is on
    # its way makes the next group: it starts as soon as that one ends.
    cdef void request_durable(self, int64_t upto) noexcept nogil
