"""Records of the journal of pops, which lanes and the event loop append.

The order of the records is that of the changes: who appends holds the log's lock while it takes the
entries, and until their record is in the log.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t

from congreve.base.atomic cimport load_acquire, store_release
from congreve.base.byte_buffer cimport release
from congreve.base.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from congreve.engine.log.commit_log cimport (
    APPEND_OK,
    APPEND_QUEUE_ROOM,
    Appended,
    AppendStatus,
)
from congreve.engine.pop.journal cimport move_entries
from congreve.engine.queue.consume_queue cimport ConsumeQueue
from congreve.records.packed_host cimport unpack_host

from congreve.engine.errors import StoreError
from congreve.records.message.topics import POP_TOPIC

cdef enum:
    KEPT_BYTES = 1 << 20        # at most, of the buffer between two records


@cython.final
cdef class PopJournalWriter:
    """Appends what pops and acknowledgements have changed to the log, from any thread.

    (RocketMQ: PopBufferMergeService.)
    """

    def __cinit__(self, InFlight in_flight not None, CommitLog log not None):
        self.in_flight, self.log = in_flight, log
        self.topic = POP_TOPIC.encode()
        self.message.topic = self.topic
        self.message.topic_length = <int32_t> len(self.topic)

    def __dealloc__(self):
        release(&self.entries)

    @property
    def pending(self):
        """Whether there are changes that are not in the log."""
        with self.log.lock:
            pthread_mutex_lock(&self.in_flight.pops.mutex)
            entries = self.in_flight.pops.journal.entries.used
            pthread_mutex_unlock(&self.in_flight.pops.mutex)
            return bool(entries or self.entries.used)

    @property
    def next(self):
        """The queue offset after the last record."""
        return load_acquire(&self.next_offset)

    @property
    def end(self):
        """The log's end after the last record."""
        return load_acquire(&self.end_offset)

    @property
    def written(self):
        """Bytes of all records of this run."""
        return load_acquire(&self.size)

    def continue_at(self, int64_t next_offset, int64_t end):
        """Say where the journal ends, before the first record of this run."""
        self.next_offset, self.end_offset = next_offset, end

    def write(self, ConsumeQueue queue not None, bytes host not None):
        """Append all changes so far to the journal's queue; `host` is the broker, packed.

        Raises BackendError, StoreError and MemoryError; the changes are for the next call then.
        """
        cdef AppendStatus status = APPEND_QUEUE_ROOM
        with self.log.lock:
            self.queue = queue
            unpack_host(&self.message.store_host, host)
            self.message.born_host = self.message.store_host
        while True:
            with nogil:
                status = self.try_append()
            if status == APPEND_OK:
                return
            if not self.log.retry(status, queue):
                raise StoreError(
                    f"{self.entries.used} bytes of the journal of pops do not fit into a segment"
                )

    cdef bint append(self) noexcept nogil:
        return self.try_append() == APPEND_OK

    cdef AppendStatus try_append(self) noexcept nogil:
        cdef AppendStatus status = APPEND_OK
        cdef Appended appended
        self.log.lock.take()
        if self.queue is None or not self.take_entries():
            status = APPEND_QUEUE_ROOM
        elif self.entries.used:
            self.message.body = self.entries.data
            self.message.body_length = <int32_t> self.entries.used
            self.message.born_timestamp = self.log.clock.now_ms()
            status = self.log.append(
                &self.message, self.queue, self.message.born_timestamp, &appended
            )
            if status == APPEND_OK:
                store_release(&self.next_offset, appended.queue_offset + 1)
                store_release(&self.end_offset, appended.end)
                store_release(&self.size, self.size + self.entries.used)
                self.entries.used = 0
                if self.entries.size > KEPT_BYTES:
                    release(&self.entries)
        self.log.lock.drop()
        return status

    cdef bint take_entries(self) noexcept nogil:
        """Add the changes so far to `entries`; False without memory."""
        cdef bint moved
        pthread_mutex_lock(&self.in_flight.pops.mutex)
        moved = move_entries(&self.in_flight.pops.journal, &self.entries)
        pthread_mutex_unlock(&self.in_flight.pops.mutex)
        return moved

    cdef int64_t end_now(self) noexcept nogil:
        return load_acquire(&self.end_offset)
