from libc.stdint cimport int64_t, uint8_t, uint32_t

from congreve.engine.log.commit_log cimport CommitLog
from congreve.engine.queue.consume_queue cimport ConsumeQueue
from congreve.io_backends.backend cimport Segment
from congreve.records.byte_table cimport Key

cdef enum:
    LINKS = 1 << 13         # of one chunk
    NO_LITE = 0xFFFFFFFF


# A lite topic, as far as its messages are in this queue. Offsets are those of the queue.
cdef struct Lite:
    Key name
    int64_t first           # its first message, -1 without one
    int64_t last
    int64_t count
    int64_t stored_ms       # when the last one was stored
    uint32_t number         # its place among all
    bint watched
    bint noted              # it is in the list of those with new messages


# What the index holds of a message.
cdef struct Link:
    uint32_t lite           # the number of its lite topic, or NO_LITE
    uint32_t step           # to the next message of the lite topic; 0: there is none so far


cdef class LiteQueue:
    cdef CommitLog log
    cdef readonly ConsumeQueue queue
    """The queue."""
    cdef readonly int64_t begin
    """The first entry that the index has."""
    cdef readonly int64_t end
    """The entry after the last one that the index has."""
    cdef readonly int64_t count
    """Lite topics with messages here."""
    cdef Segment segment        # the last that catch_up() has read
    cdef Link **chunks          # of the entries from `first_chunk` * LINKS on
    cdef int64_t first_chunk
    cdef int64_t chunk_count
    cdef int64_t chunk_room
    cdef Lite **lites           # by number; NULL: free
    cdef uint32_t lite_end      # no number in use is at or after it
    cdef uint32_t lite_room
    cdef uint32_t *free_numbers
    cdef uint32_t free_count
    cdef Key **slots            # the same by name
    cdef Py_ssize_t capacity
    cdef uint32_t used          # lite topics in the table, with messages or not
    cdef uint32_t *noted
    cdef uint32_t noted_count
    cdef uint32_t noted_room

    cdef Link *link_at(self, int64_t offset) noexcept nogil
    cdef int make_chunk(self, int64_t offset) except -1
    cdef Lite *lite_of(self, const uint8_t *name, int64_t length, bint make) except? NULL
    cdef int grow_lites(self) except -1
    cdef int clear(self, Lite *lite) except -1
    cdef int remove(self, Lite *lite) except -1
    cdef int add(self, int64_t offset, int64_t ttl_ms) except -1
    cdef int note(self, Lite *lite) except -1
    cdef int drop_before(self, int64_t offset) except -1
    cdef bint has_messages(self, Lite *lite) noexcept nogil
