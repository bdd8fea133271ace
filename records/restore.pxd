from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.records.record cimport Message, RecordView

# Why a record was stored under another topic than its own.
cdef enum RestoreKind:
    RESTORE_DELAYED = 0     # a delay level
    RESTORE_TIMED = 1       # a delivery time: the copy has its offset + 1 as prepared offset
    RESTORE_COMMITTED = 2   # a half message: its type becomes COMMIT, its offset is kept

cdef enum RestoreCheck:
    RESTORE_OK = 0
    RESTORE_NO_TARGET = 1   # REAL_TOPIC or REAL_QID is missing or invalid

# Makes the delivered form of the parked record: its real topic and queue, the hash of its tags. The
# properties are unchanged, as in the reference, except for a timed record, whose properties are
# copied to `buffer` (PROPERTIES_MAX bytes). All other fields are slices of the parked record.
cdef RestoreCheck restore(const RecordView *parked, RestoreKind kind, uint8_t *buffer,
                          Message *message) noexcept nogil

# The decimal number of at most 18 digits at `at`; -1 if there is none.
cdef int64_t decimal(const uint8_t *at, Py_ssize_t length) noexcept nogil
