from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp

from congreve.records.record cimport RecordView

cdef enum State:
    SOUND
    NO_RECORD       # the bytes are not a record, or are another one
    BAD_CRC
    BAD_BODY        # it cannot be decompressed

cdef struct Text:
    const uint8_t *at       # NULL if there is none
    int32_t length

cdef struct Piece:
    Text name
    Text value

cdef struct Row:
    RecordView view
    int64_t tags_code
    Text tags
    Text keys
    Text unique_key
    State state

# Reads the record of `length` bytes at `place`; the state tells whether it is damaged.
cdef void look_at(Row *row, const uint8_t *data, int64_t length, int64_t place,
                  int64_t physical_offset, bint verify_crc) noexcept nogil

# Finds the wanted ones of tags, keys and unique_key in one pass; the others are NULL.
cdef enum:
    WANT_TAGS = 1
    WANT_KEYS = 2
    WANT_UNIQUE_KEY = 4
cdef void find_names(Row *row, int32_t wanted) noexcept nogil

# All properties, at most PIECES_MAX; the last of equal names counts, as in Java's map.
cdef enum:
    PIECES_MAX = 8192       # "k=v" with a separator, as often as PROPERTIES_MAX allows
cdef int32_t split(const RecordView *view, Piece *pieces) noexcept nogil


cdef inline bint same(const Text *a, const Text *b) noexcept nogil:
    return a.length == b.length and memcmp(a.at, b.at, a.length) == 0


# The offset message id; returns its length, at most MESSAGE_ID_MAX.
cdef int32_t put_offset_id(uint8_t *at, const RecordView *view) noexcept nogil
