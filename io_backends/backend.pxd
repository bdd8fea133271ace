from libc.stdint cimport int64_t, uint8_t

from congreve.base.pthread cimport pthread_cond_t, pthread_mutex_t
from congreve.io_backends.mapping cimport Mapping


cdef class Segment:
    # One fixed-size file of the commit log, as memory.
    #   data     readable in [0, written) by anyone, writable in [written, size) by the one writer
    #   ready    the writer may write in [written, ready); extend() asks for more
    #   written  bytes appended; the one writer advances it after the bytes with publish(), other
    #            threads load it with published()
    # The backend has the durable offset, a physical one.
    cdef readonly str path
    """Path of the file."""
    cdef readonly int64_t base_offset
    """Physical offset of the first byte."""
    cdef readonly int64_t size
    """Bytes."""
    cdef uint8_t *data
    cdef int64_t written
    cdef int64_t ready
    cdef readonly int64_t prewritten
    """Offset up to which prewrite() has written zeros."""
    cdef object __weakref__     # shows whether an expired segment is still referenced

    # Makes [0, upto) writable; False if the disk is behind and memory is short.
    cdef bint extend(self, int64_t upto) noexcept nogil
    cdef void publish(self, int64_t written) noexcept nogil
    cdef int64_t published(self) noexcept nogil
    # The physical offset after the published bytes.
    cdef int64_t published_end(self) noexcept nogil
    # A descriptor of a file that has all of [0, written), to send from; -1 if there is none.
    # From then on sockets may hold its pages: `is_sent_from` is true.
    cdef int descriptor(self) noexcept


cdef class FileSegment(Segment):
    cdef readonly Mapping mapping
    """The mapping of the whole file."""


# A new file of zeros with reserved blocks; BackendError leaves none.
cdef Mapping new_file(str path, int64_t size)
# A file of which [0, written) is meaningful.
cdef Mapping old_file(str path, int64_t size, int64_t written)


cdef class Backend:
    # Owns durability of the commit log's segments.
    #   durable   every byte below this physical offset survives a power cut; never goes back
    #   failure   0, or the errno of the first write or sync that failed: then nothing more is
    #             ever called durable
    #   event_fd  an eventfd, readable when `durable` or `failure` moved; the reader resets it
    #   prewrites  new segments are synced faster when zeros were written to them before
    # `lock` guards both numbers and what a subclass keeps beside them; `moved` wakes waiters.
    cdef readonly int event_fd
    """An eventfd, readable whenever `durable_offset` or `failure_errno` changed."""
    cdef readonly bint prewrites
    """Whether a new segment should be given prewrite() before it is used."""
    cdef int64_t durable
    cdef int failure
    cdef int64_t moves      # how often `durable` moved
    cdef int follower       # an eventfd to signal when `durable` moves, -1 for none
    cdef int bus_errors     # the process's count when this backend was made
    cdef pthread_mutex_t lock
    cdef pthread_cond_t moved

    # Requests that all below `upto` becomes durable; never blocks. Requests during a group's write
    # form the next group, which starts as soon as the write ends.
    cdef void request_durable(self, int64_t upto) noexcept nogil
    # The same for a caller that would wait: True if this call made `upto` durable itself.
    cdef bint write_here(self, int64_t upto) noexcept nogil
    # Reports the end of the log, about once a MiB: a backend may prepare the memory after it.
    cdef void reached(self, int64_t position) noexcept nogil

    # For subclasses, which hold `lock`. skip(): no byte before `offset` will be written.
    # lost_page(): whether a SIGBUS replaced a mapped page, which is a failure of the backend. The
    # others record the outcome of a group.
    cdef void skip(self, int64_t offset) noexcept nogil
    cdef bint lost_page(self) noexcept nogil
    cdef void succeed(self, int64_t durable) noexcept nogil
    cdef void advance_to(self, int64_t durable) noexcept nogil
    cdef void fail(self, int error) noexcept nogil


# Makes an eventfd readable.
cdef void signal(int event_fd) noexcept nogil
