"""Watchers of a queue: readers that want one notice when the queue gets its next entry.

Each watcher is one bit. A reader that finds nothing adds its bit. The thread that appends to a
queue with watchers removes their bits and notifies them; a reader that waits again adds its bit
again.
"""

from libc.stdint cimport int64_t, uint64_t

from congreve.base.atomic cimport and_bits, or_bits


LOOP_WATCHER = loop_watcher()
"""The event loop's bit; lanes have the lower ones."""


cdef int64_t watch_queue(AppendLock lock, ConsumeQueue queue, uint64_t watcher) noexcept nogil:
    cdef int64_t end
    lock.take()
    or_bits(&queue.watchers, watcher)
    end = queue.max_offset
    lock.drop()
    return end


cdef uint64_t remove_watchers(ConsumeQueue queue, uint64_t watchers) noexcept nogil:
    return and_bits(&queue.watchers, ~watchers) & watchers


def watch(AppendLock lock not None, ConsumeQueue queue not None, uint64_t watcher):
    """Ask for a notice of the queue's next entry; returns the queue's end at that moment.

    `watcher` has one bit set; `lock` is the log's append lock.
    """
    with lock:
        or_bits(&queue.watchers, watcher)
        return queue.max_offset


def take_watchers(ConsumeQueue queue not None):
    """Remove all watchers of a queue that got an entry, and return their bits; notify them."""
    return remove_watchers(queue, ~<uint64_t> 0)
