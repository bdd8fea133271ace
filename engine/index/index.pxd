from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.base.pthread cimport pthread_cond_t, pthread_mutex_t
from congreve.engine.index.index_file cimport IndexFile
from congreve.engine.index.index_files cimport IndexFiles
from congreve.io_backends.backend cimport Segment
from congreve.records.record cimport RecordView

# The reason why follow() returned to code that holds the GIL.
cdef enum Stop:
    STOP_ENDED          # stop() was called and nothing is left to index
    STOP_SEGMENT        # the next record is in another segment
    STOP_FILE           # no index file is open, or it is full
    STOP_ENTRIES           # the file needs its next stretch of entries
    STOP_DAMAGED        # there is no record where one must be
    STOP_FULL           # enough keys are collected; follow() never returns it

cdef enum:
    # Keys that the thread collects before it adds the first one, whose slot is in the processor's
    # cache by then. After so many the thread yields the processor.
    KEYS_AHEAD = 128
    # Most records are as long as their predecessors: with this length it prefetches the properties
    # of a later record and the head of the next one.
    RECORDS_AHEAD = 4

# A key of a message, by its hash, and what its entry says.
cdef struct Key:
    int32_t hash
    int64_t physical_offset
    int64_t store_timestamp


cdef class KeyIndex(IndexFiles):
    cdef object health
    cdef object state_file
    cdef object known               # IndexState of the last stop
    cdef dict sums                  # CRC-32 of files by name
    cdef object thread
    # Only the index thread uses these:
    cdef IndexFile current
    cdef Segment segment
    cdef int64_t position           # physical offset of the next record to look at
    cdef int32_t keys_done          # keys of that record that were found before
    cdef Key keys[KEYS_AHEAD]       # found, in order:
    cdef int32_t keys_found
    cdef int32_t keys_put           # how many of them are in the index
    cdef int64_t indexed            # all records below are in the index, whole
    # Shared with the appending thread, under `lock`:
    cdef pthread_mutex_t lock
    cdef pthread_cond_t arrived
    cdef int asleep             # true or false; wake() reads it without the lock
    cdef bint stopping

    cpdef void wake(self) noexcept nogil
    cdef Stop follow(self) noexcept nogil
    cdef int64_t segment_end(self) noexcept nogil
    cdef Stop walk(self, int64_t end) noexcept nogil
    cdef bint wait_for_more(self) noexcept nogil
    cdef Stop take_record(self, const RecordView *view) noexcept nogil
    cdef Stop take_key(self, const RecordView *view, const uint8_t *key, int32_t length,
                       int32_t number) noexcept nogil
    cdef Stop put_keys(self) noexcept nogil
    cdef int resume(self, Stop stop) except -1
