from libc.stdint cimport int64_t

from congreve.base.atomic cimport load_acquire
from congreve.io_backends.backend cimport Backend


cdef class ConfirmOffset:
    # What answers wait for: the disk (SYNC_FLUSH), slaves (SYNC_MASTER), or both.
    cdef readonly Backend backend
    """The backend of the log."""
    cdef readonly bint waits_for_disk
    """Whether messages must be durable here before they are acknowledged (SYNC_FLUSH)."""
    cdef readonly bint waits_for_slaves
    """Whether slaves must have confirmed them (SYNC_MASTER)."""
    cdef int64_t confirmed      # slaves have all bytes below it
    cdef int64_t usable         # number of slaves that sends may wait for
    cdef int64_t behind_max

    # The physical offset below which messages may be acknowledged.
    cdef inline int64_t offset(self) noexcept nogil:
        cdef int64_t durable
        if not self.waits_for_slaves:
            return load_acquire(&self.backend.durable)
        durable = load_acquire(&self.confirmed)
        return min(durable, load_acquire(&self.backend.durable)) if self.waits_for_disk else durable

    # Whether a send that ends at `upto` may wait for slaves.
    cdef inline bint has_slave(self, int64_t upto) noexcept nogil:
        return not self.waits_for_slaves or (
            load_acquire(&self.usable) > 0
            and upto - load_acquire(&self.confirmed) < self.behind_max
        )

    # Whether `upto` is on this broker's disk, if it must be.
    cdef inline bint on_disk(self, int64_t upto) noexcept nogil:
        return not self.waits_for_disk or upto <= load_acquire(&self.backend.durable)

    # confirm() for compiled code.
    cdef void take(self, int64_t offset, int64_t usable) noexcept nogil

    # Requests the flush up to `upto`, if this broker must have it on disk.
    cdef inline void request(self, int64_t upto) noexcept nogil:
        if self.waits_for_disk:
            self.backend.request_durable(upto)
