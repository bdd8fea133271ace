from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.records cimport layout
from congreve.records.columns.buffer cimport ColumnBuffer
from congreve.records.host cimport HOST_TEXT_MAX
from congreve.records.record cimport RecordView
from congreve.records.columns.row cimport Piece, Row

cdef enum Kind:
    QUEUE_ID
    FLAG
    SYS_FLAG
    BODY_CRC
    STORE_SIZE
    RECONSUME_TIMES
    QUEUE_OFFSET
    PHYSICAL_OFFSET
    TAGS_CODE
    BORN_TIMESTAMP
    STORE_TIMESTAMP
    BODY
    TAGS
    KEYS
    MESSAGE_ID
    OFFSET_MESSAGE_ID
    BORN_HOST
    STORE_HOST
    PROPERTIES
    PROPERTIES_JSON

cdef enum Failure:
    NOTHING = 0
    NO_MEMORY = -1
    TOO_LARGE = -2          # Arrow's offsets have 32 bits

cdef enum:
    CHUNK = 64              # most rows of a fill(); they stay in the cache for all columns


cdef class Column:
    # values of a fixed width, or text and bytes with 32-bit offsets; a map has names too
    cdef readonly str name
    """Name of the field."""
    cdef readonly int64_t rows
    """Number of rows."""
    cdef readonly int64_t null_count
    """Number of rows without a value."""
    cdef readonly ColumnBuffer validity
    """A bit for each row, 0 if it has no value; empty if each row has one."""
    cdef readonly ColumnBuffer offsets
    """Offsets of text, bytes or map entries, int32, rows + 1 of them; empty for fixed widths."""
    cdef readonly ColumnBuffer values
    """The values: fixed-width numbers, or the bytes of texts; of a map the values of its entries.
    """
    cdef readonly ColumnBuffer entry_offsets
    """For a map: offsets of its entries' values in `values`, int32."""
    cdef readonly ColumnBuffer name_offsets
    """For a map: offsets of its entries' names in `names`, int32."""
    cdef readonly ColumnBuffer names
    """For a map: the bytes of its entries' names."""
    cdef Kind kind
    cdef int32_t width              # 0 where offsets tell
    cdef bint decompress
    cdef Piece *pieces
    cdef int32_t last_host_length   # of which `host` is the text
    cdef uint8_t host[HOST_TEXT_MAX]
    cdef int32_t host_length
    cdef uint8_t last_host_bytes[layout.HOST_V6]

    # Take `count` rows, whose records have `bytes` bytes together.
    cdef Failure fill(self, Row *rows, int64_t count, int64_t bytes) noexcept nogil

    # Reserves as much memory as another column has: growing to it step by step would copy the data.
    cdef bint make_room_of(self, Column other) noexcept nogil

    cdef bint make_room(self, int64_t count, int64_t bytes) noexcept nogil
    cdef bint set_null(self, int64_t row) noexcept nogil
    cdef Failure fill_numbers(self, const Row *rows, int64_t count) noexcept nogil
    cdef Failure fill_texts(self, Row *rows, int64_t count) noexcept nogil
    cdef Failure fill_map(self, const Row *rows, int64_t count) noexcept nogil
    cdef bint put_name(self, const Row *row, int64_t number) noexcept nogil
    cdef bint put_host(self, const uint8_t *host, int32_t length) noexcept nogil
    cdef bint put_body(self, Row *row, int64_t number) noexcept nogil
    cdef bint put_decompressed(self, Row *row, int64_t number) noexcept nogil
    cdef bint put_entry(self, const Piece *piece) noexcept nogil
    cdef bint put_json(self, const RecordView *view) noexcept nogil
