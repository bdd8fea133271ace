from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.records.record cimport Message, RecordView

# Why a record was stored under another topic than its own.
cdef enum RestoreKind:
    RESTORE_DELAYED = 0     # a delay level
    RESTORE_TIMED = 1       # a deliver time of its own: its offset + 1 is kept
    RESTORE_COMMITTED = 2   # a half message: its type becomes COMMIT, its offset is kept

cdef enum RestoreCheck:
    RESTORE_OK = 0
    RESTORE_NO_TARGET = 1   # REAL_TOPIC or REAL_QID is absent or cannot be one

# What the parked record at `parked` is to be stored as: its real topic and queue, its tags' hash.
# The properties stay as they are, as with the reference, but for those of a timed record, which are
# copied to `buffer` (PROPERTIES_MAX bytes). All else stays slices of the parked record.
cdef RestoreCheck restore(const RecordView *parked, RestoreKind kind, uint8_t *buffer,
                          Message *message) noexcept nogil

# The decimal number of at most 18 digits at `at`; -1 where it is none.
cdef int64_t decimal(const uint8_t *at, Py_ssize_t length) noexcept nogil
