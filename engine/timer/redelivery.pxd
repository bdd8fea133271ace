from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.engine.log.commit_log cimport Appended, CommitLog
from congreve.engine.queue.queue_map cimport QueueMap
from congreve.io_backends.backend cimport Segment
from congreve.records.record cimport Message, RecordView
from congreve.records.restore cimport RestoreKind

cdef enum RedeliveryStop:
    REDELIVER_NEXT = 0      # this entry is done
    REDELIVER_DONE = 1      # nothing (more) is due, or enough was done
    REDELIVER_SOURCE = 2    # the record is in a segment other than `source`
    REDELIVER_QUEUE = 3     # its queue is not known yet
    REDELIVER_SEGMENT = 4   # the log needs its next segment
    REDELIVER_QUEUE_ROOM = 5      # its queue needs room
    REDELIVER_DAMAGED = 6   # the entry leads to no parked record of its level and offset

cdef enum:
    PIECE_MAX = 16  # messages that are read, then appended under one hold of the append lock

cdef struct RestoredMessage:
    Message message     # its bytes are in `source` and `buffer`
    void *queue         # the ConsumeQueue that it goes to
    int64_t entry       # the `at` of its entry
    bint undeliverable


cdef class Redelivery:
    # Appends parked records to their real queues; the log's one writer calls it.
    cdef CommitLog log
    cdef object queues
    cdef object lacks_file
    cdef object present_queue   # of a topic and a queue id; None: each queue is present
    cdef QueueMap known
    cdef Segment source         # of the current record
    cdef uint8_t *buffer
    cdef RestoreKind kind
    cdef RecordView parked
    cdef RestoredMessage[PIECE_MAX] piece
    cdef RestoredMessage *next  # the one that was read last
    cdef int count              # messages of the piece
    cdef int put                # those of them that are appended
    cdef int64_t piece_bytes
    cdef Appended appended
    cdef int64_t now_ms
    cdef int64_t byte_limit     # the run ends when the log reaches this offset
    cdef int64_t time_limit     # or the monotonic clock, in ns
    cdef int64_t at             # of the current entry
    cdef int32_t level_id       # its queue's
    cdef int64_t passes         # damaged entries before this one are passed over
    cdef int64_t roll_ms
    cdef int64_t run_ns

    cdef readonly int64_t delivered
    """Records appended by the last run."""
    cdef readonly int64_t skipped
    """Entries of the last run that were skipped: their message is gone."""
    cdef readonly int64_t undeliverable
    """Records of the last run that no topic can hold as they say: UNDELIVERABLE_TOPIC has them."""
    cdef readonly int64_t end
    """Physical offset after the last run's last record, 0 if it appended none."""
    cdef readonly int64_t next_due
    """Due time, in ms since 1970, of the entry that ended the last run; 0 without one."""
    cdef readonly object fileless
    """Topic and id of the queue that ended the last run, because it has no file; None: of none."""
    cdef readonly bint damaged
    """Whether the last run ended at an entry that does not lead to its parked record."""
    cdef readonly str failure
    """The disk's error that ended the last run early, None without one."""

    cdef int begin(self, RestoreKind kind, int64_t now_ms) except -1
    cdef RedeliveryStop walk(self, const void *entries, int64_t stop,
                             int64_t delay_ms) noexcept nogil
    cdef RedeliveryStop read_entries(self, const uint8_t *entries, int64_t stop,
                                     int64_t delay_ms) noexcept nogil
    cdef RedeliveryStop read_offsets(self, const int64_t *offsets, int64_t stop) noexcept nogil
    cdef RedeliveryStop read(self, int64_t physical_offset) noexcept nogil
    cdef RedeliveryStop read_parked(self, int64_t physical_offset) noexcept nogil
    cdef bint restored(self) noexcept nogil
    cdef bint rolls(self) noexcept nogil
    cdef bint is_parked_here(self) noexcept nogil
    cdef RedeliveryStop skip(self) noexcept nogil
    cdef RedeliveryStop set_aside(self) noexcept nogil
    cdef RedeliveryStop take(self) noexcept nogil
    cdef RedeliveryStop append_piece(self) noexcept nogil
    cdef bint enough(self) noexcept nogil
    cdef int resume(self, RedeliveryStop stop, int64_t physical_offset) except -1
    cdef int fail(self, error) except -1
    cdef int find_queue(self) except -1
