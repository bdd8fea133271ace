from libc.stdint cimport int64_t, uint64_t

from congreve.engine.log.append_lock cimport AppendLock
from congreve.engine.queue.consume_queue cimport ConsumeQueue

# The event loop's bit; lanes have the lower ones.
cdef inline uint64_t loop_watcher() noexcept nogil:
    return <uint64_t> 1 << 63

# Asks for a notice of the queue's next entry; returns the queue's end at that moment. No entry is
# missed: the appender looks at `watchers` under the same lock.
cdef int64_t watch_queue(AppendLock lock, ConsumeQueue queue, uint64_t watcher) noexcept nogil
# Removes these watchers, and returns which of them the queue had; the caller notifies them.
cdef uint64_t remove_watchers(ConsumeQueue queue, uint64_t watchers) noexcept nogil
