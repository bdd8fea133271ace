"""What groups pull from topics, counted by lanes and by the event loop."""

cimport cython
from libc.stdint cimport int64_t

from congreve.base.atomic cimport add_relaxed, load_acquire


@cython.final
cdef class PullCounter:
    """Counts what one group pulled from one topic (RocketMQ: BrokerStatsManager, GROUP_GET_NUMS).

    Any thread may count and read.
    """

    @property
    def pulls(self):
        """Pulls that found messages."""
        return load_acquire(&self.pull_count)

    @property
    def messages(self):
        """Messages in the answers."""
        return load_acquire(&self.message_count)

    @property
    def size(self):
        """Bytes of the records in the answers."""
        return load_acquire(&self.byte_count)

    cpdef void add(self, int64_t messages, int64_t size) noexcept nogil:
        """Count one answered pull with this many messages and bytes."""
        add_relaxed(&self.pull_count, 1)
        add_relaxed(&self.message_count, messages)
        add_relaxed(&self.byte_count, size)
