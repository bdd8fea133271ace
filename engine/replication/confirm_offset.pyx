"""The physical offset below which messages may be acknowledged."""

cimport cython
from libc.stdint cimport INT64_MAX, int64_t

from congreve.base.atomic cimport store_release
from congreve.io_backends.backend cimport Backend, signal


@cython.final
cdef class ConfirmOffset:
    """What the answers of sends wait for: this broker's disk, slaves, or both.

    RocketMQ: HAService.push2SlaveMaxOffset with GroupTransferService; confirmOffset in RocketMQ 5.
    Threads that hold answers listen to the backend's eventfd, which confirm() signals too.

    `behind_max`: with slaves that are further behind, in bytes, sends do not wait for them
    (haSlaveFallbehindMax).
    """

    def __cinit__(self, Backend backend not None, *, bint waits_for_disk,
                  bint waits_for_slaves=False, int64_t behind_max=INT64_MAX):
        self.backend = backend
        self.waits_for_disk, self.waits_for_slaves = waits_for_disk, waits_for_slaves
        self.behind_max = behind_max

    @property
    def confirmed_offset(self):
        """Slaves have confirmed all bytes below this physical offset."""
        return load_acquire(&self.confirmed)

    def current(self):
        """Messages below this physical offset may be acknowledged."""
        if self.waits_for_disk:
            self.backend.durable_offset  # takes completed writes
        return self.offset()

    def may_wait(self, int64_t upto):
        """Whether a send that ends at `upto` may wait for slaves (RocketMQ: isSlaveOK)."""
        return self.has_slave(upto)

    def is_on_disk(self, int64_t upto):
        """Whether `upto` is on this broker's disk, or need not be."""
        return self.on_disk(upto)

    def confirm(self, int64_t offset, int64_t usable):
        """Set up to where slaves have the log, and how many there are.

        A smaller offset than before is ignored. Waiting answers are released.
        """
        self.take(offset, usable)

    cdef void take(self, int64_t offset, int64_t usable) noexcept nogil:
        store_release(&self.usable, usable)
        if offset > self.confirmed:
            store_release(&self.confirmed, offset)
            if self.waits_for_slaves:
                signal(self.backend.event_fd)

    def replace(self, offset, usable):
        """confirm() that may also go back: messages that are not acknowledged yet wait again."""
        store_release(&self.usable, usable)
        store_release(&self.confirmed, offset)
        if self.waits_for_slaves:
            signal(self.backend.event_fd)
