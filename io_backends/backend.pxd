from libc.stdint cimport int64_t, uint8_t

from congreve.io_backends.pthread cimport pthread_cond_t, pthread_mutex_t


cdef class Segment:
    # One fixed-size file of the commit log, as memory.
    #   data     readable in [0, written) by anyone, writable in [written, size) by the one writer
    #   ready    the writer may write in [written, ready); extend() asks for more
    #   written  bytes appended; the one writer advances it behind the bytes with publish(), other
    #            threads load it with published()
    # What has become durable is known to the backend, in physical offsets.
    cdef readonly str path
    cdef readonly int64_t base_offset
    cdef readonly int64_t size
    cdef uint8_t *data
    cdef int64_t written
    cdef int64_t ready
    cdef readonly int64_t prewritten    # behind `written`, zeros are on disk up to here
    cdef object __weakref__     # tells whether an expired segment is still in somebody's hands

    # Whether [0, upto) may be written now; False where the disk is behind and memory is short.
    cdef bint extend(self, int64_t upto) noexcept nogil
    cdef void publish(self, int64_t written) noexcept nogil
    cdef int64_t published(self) noexcept nogil
    # A descriptor of a file that has all of [0, written), to send from; -1 where there is none to
    # be had. Pages may be on their way to readers from then on: the segment is lent.
    cdef int descriptor(self) noexcept


cdef class Backend:
    # Owns durability of the commit log's segments.
    #   durable   every byte below this physical offset survives a power cut; never goes back
    #   failure   0, or the errno of the first write or sync that failed: then nothing more is
    #             ever called durable
    #   event_fd  an eventfd, readable when `durable` or `failure` moved; the reader resets it
    #   prewrites  new segments are synced faster when zeros were written to them before
    # `lock` guards both numbers and what a subclass keeps beside them; `moved` tells waiters.
    cdef readonly int event_fd
    cdef readonly bint prewrites
    cdef int64_t durable
    cdef int failure
    cdef int bus_errors     # of the process when this backend was made
    cdef pthread_mutex_t lock
    cdef pthread_cond_t moved

    # Asks that all below `upto` becomes durable; never blocks. Asking again while a group is on
    # its way makes the next group: it starts as soon as that one ends.
    cdef void request_durable(self, int64_t upto) noexcept nogil
    # The same for one who waits anyway: True when `upto` is durable already, written here.
    cdef bint write_here(self, int64_t upto) noexcept nogil
    # Tells how far appends are, about once a MiB: a backend may ready the memory in front of them.
    cdef void reached(self, int64_t position) noexcept nogil

    # For subclasses, with `lock` held: whether a mapped page was lost to SIGBUS, which then is the
    # failure, and what became of a group.
    cdef bint lost_page(self) noexcept nogil
    cdef void succeed(self, int64_t durable) noexcept nogil
    cdef void fail(self, int error) noexcept nogil
