"""One column: values taken from rows, in Arrow's memory layout."""

cimport cython
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset
from cpython.bytes cimport PyBytes_AS_STRING

from congreve.records cimport layout
from congreve.records.columns.buffer cimport (
    JSON_GROWTH, ColumnBuffer, put_byte, put_i32, put_quoted, put_text,
)
from congreve.records.host cimport MESSAGE_ID_MAX, host_text
from congreve.records.record cimport RecordView
from congreve.records.columns.row cimport (
    BAD_BODY, NO_RECORD, PIECES_MAX, SOUND, Piece, Row, put_offset_id, split,
)

from congreve.records.inflate import inflate

COMPRESSOR_MASK = 0x700
COMPRESSOR_ZLIB = 0x300

KINDS = {
    "queueId": QUEUE_ID,
    "flag": FLAG,
    "sysFlag": SYS_FLAG,
    "bodyCRC": BODY_CRC,
    "storeSize": STORE_SIZE,
    "reconsumeTimes": RECONSUME_TIMES,
    "queueOffset": QUEUE_OFFSET,
    "commitLogOffset": PHYSICAL_OFFSET,
    "tagsCode": TAGS_CODE,
    "bornTimestamp": BORN_TIMESTAMP,
    "storeTimestamp": STORE_TIMESTAMP,
    "body": BODY,
    "tags": TAGS,
    "keys": KEYS,
    "msgId": MESSAGE_ID,
    "offsetMsgId": OFFSET_MESSAGE_ID,
    "bornHost": BORN_HOST,
    "storeHost": STORE_HOST,
    "properties": PROPERTIES,
    "propertiesJson": PROPERTIES_JSON,
}


cdef const void *field_of(Kind kind, const Row *row) noexcept nogil:
    """The number in a row: 64 bits for times, offsets and codes, 32 for all others."""
    if kind == BORN_TIMESTAMP:
        return &row.view.born_timestamp
    if kind == STORE_TIMESTAMP:
        return &row.view.store_timestamp
    if kind == QUEUE_OFFSET:
        return &row.view.queue_offset
    if kind == PHYSICAL_OFFSET:
        return &row.view.physical_offset
    if kind == TAGS_CODE:
        return &row.tags_code
    if kind == STORE_SIZE:
        return &row.view.size
    if kind == QUEUE_ID:
        return &row.view.queue_id
    if kind == FLAG:
        return &row.view.flag
    if kind == SYS_FLAG:
        return &row.view.sys_flag
    if kind == BODY_CRC:
        return &row.view.body_crc
    return &row.view.reconsume_times


cdef inline bint known_without_record(Kind kind) noexcept nogil:
    return (
        kind == QUEUE_OFFSET or kind == PHYSICAL_OFFSET or kind == STORE_SIZE or kind == TAGS_CODE
    )


@cython.final
cdef class Column:
    """The values of one column in Arrow's layout and native byte order.

    Numbers and times use `values` alone: int32, int64, microseconds since 1970. Texts and bodies
    also use `offsets` (int32, rows + 1). The `offsets` of a map count its entries; their names are
    in `names` at `name_offsets`, and their values in `values` at `entry_offsets`.
    """

    def __cinit__(self, str name, Kind kind, bint decompress):
        self.name, self.kind, self.decompress = name, kind, decompress
        self.validity = ColumnBuffer()
        self.offsets = ColumnBuffer()
        self.values = ColumnBuffer()
        self.entry_offsets = ColumnBuffer()
        self.name_offsets = ColumnBuffer()
        self.names = ColumnBuffer()
        if kind <= RECONSUME_TIMES:
            self.width = 4
        elif kind <= STORE_TIMESTAMP:
            self.width = 8
        else:
            begin_offsets(self.offsets)
        if kind == PROPERTIES:
            begin_offsets(self.entry_offsets)
            begin_offsets(self.name_offsets)
        if kind >= PROPERTIES:
            self.pieces = <Piece *> malloc(PIECES_MAX * sizeof(Piece))
            if self.pieces == NULL:
                raise MemoryError()

    def __dealloc__(self):
        free(self.pieces)

    cdef Failure fill(self, Row *rows, int64_t count, int64_t bytes) noexcept nogil:
        cdef Failure failure
        if not self.make_room(count, bytes):
            return NO_MEMORY
        if self.width:
            failure = self.fill_numbers(rows, count)
        elif self.kind == PROPERTIES:
            failure = self.fill_map(rows, count)
        else:
            failure = self.fill_texts(rows, count)
        self.rows += count
        return failure

    cdef bint make_room(self, int64_t count, int64_t bytes) noexcept nogil:
        cdef int64_t had = self.validity.length
        cdef int64_t validity = (self.rows + count + 7) // 8
        if 0 < had < validity:
            if not self.validity.reserve(validity - had):
                return False
            memset(self.validity.data + had, 0xFF, validity - had)
            self.validity.length = validity
        if self.width:
            return self.values.reserve(count * self.width)
        if not self.offsets.reserve(4 * count):
            return False
        if self.kind == PROPERTIES:
            return (
                self.entry_offsets.reserve(bytes) and self.name_offsets.reserve(bytes)
                and self.names.reserve(bytes) and self.values.reserve(bytes)
            )
        if self.kind == PROPERTIES_JSON:
            return self.values.reserve(JSON_GROWTH * bytes + 8 * count)
        return self.values.reserve(bytes + MESSAGE_ID_MAX * count)

    cdef bint make_room_of(self, Column other) noexcept nogil:
        return (
            same_room(self.offsets, other.offsets) and same_room(self.values, other.values)
            and same_room(self.entry_offsets, other.entry_offsets)
            and same_room(self.name_offsets, other.name_offsets)
            and same_room(self.names, other.names)
        )

    cdef bint set_null(self, int64_t row) noexcept nogil:
        cdef int64_t length = (self.rows + CHUNK + 7) // 8
        cdef uint8_t *bits
        if self.validity.length == 0:
            if not self.validity.reserve(length):
                return False
            memset(self.validity.data, 0xFF, length)
            self.validity.length = length
        bits = self.validity.data + row // 8
        bits[0] = bits[0] & <uint8_t> ~(1 << (row % 8))
        self.null_count += 1
        return True

    cdef Failure fill_numbers(self, const Row *rows, int64_t count) noexcept nogil:
        cdef int32_t *narrow = <int32_t *> (self.values.data + self.values.length)
        cdef int64_t *wide = <int64_t *> narrow
        # The field is at the same place in each row, so the loop does not choose it again.
        cdef const uint8_t *field = <const uint8_t *> field_of(self.kind, rows)
        cdef int64_t unit = 1000 if self.kind in (BORN_TIMESTAMP, STORE_TIMESTAMP) else 1
        cdef int64_t i
        if self.width == 4:
            for i in range(count):
                narrow[i] = (<const int32_t *> (field + i * sizeof(Row)))[0]
        else:
            for i in range(count):
                wide[i] = unit * (<const int64_t *> (field + i * sizeof(Row)))[0]
        self.values.length += count * self.width
        if not known_without_record(self.kind):
            for i in range(count):
                if rows[i].state == NO_RECORD and not self.set_null(self.rows + i):
                    return NO_MEMORY
        return NOTHING

    cdef Failure fill_texts(self, Row *rows, int64_t count) noexcept nogil:
        cdef int64_t i
        cdef bint done
        for i in range(count):
            if rows[i].state == NO_RECORD:
                done = self.set_null(self.rows + i)
            elif self.kind == BODY:
                done = self.put_body(&rows[i], self.rows + i)
            elif self.kind == PROPERTIES_JSON:
                done = self.put_json(&rows[i].view)
            elif self.kind == BORN_HOST:
                done = self.put_host(rows[i].view.born_host, rows[i].view.born_host_length)
            elif self.kind == STORE_HOST:
                done = self.put_host(rows[i].view.store_host, rows[i].view.store_host_length)
            else:
                done = self.put_name(&rows[i], self.rows + i)
            if not done:
                return NO_MEMORY
            if self.values.length > INT32_MAX:
                return TOO_LARGE
            put_i32(self.offsets, self.values.length)
        return NOTHING

    cdef bint put_name(self, const Row *row, int64_t number) noexcept nogil:
        """A text of the properties, or an id in place of a missing one."""
        if self.kind == TAGS and row.tags.at != NULL:
            return put_text(self.values, row.tags.at, row.tags.length)
        if self.kind == KEYS and row.keys.at != NULL:
            return put_text(self.values, row.keys.at, row.keys.length)
        if self.kind == MESSAGE_ID and row.unique_key.at != NULL:
            return put_text(self.values, row.unique_key.at, row.unique_key.length)
        if self.kind == TAGS or self.kind == KEYS:
            return self.set_null(number)
        self.values.length += put_offset_id(self.values.data + self.values.length, &row.view)
        return True

    cdef bint put_host(self, const uint8_t *host, int32_t length) noexcept nogil:
        # Messages of one producer are often adjacent.
        if length != self.last_host_length or memcmp(host, self.last_host_bytes, length) != 0:
            memcpy(self.last_host_bytes, host, length)
            self.last_host_length = length
            self.host_length = host_text(self.host, host, length)
        memcpy(self.values.data + self.values.length, self.host, self.host_length)
        self.values.length += self.host_length
        return True

    cdef bint put_body(self, Row *row, int64_t number) noexcept nogil:
        if self.decompress and row.view.sys_flag & layout.SYS_COMPRESSED:
            return self.put_decompressed(row, number)
        memcpy(self.values.data + self.values.length, row.view.body, row.view.body_length)
        self.values.length += row.view.body_length
        return True

    cdef bint put_decompressed(self, Row *row, int64_t number) noexcept with gil:
        cdef bytes body
        try:
            body = decompressed(&row.view)
        except MemoryError:
            return False
        if body is None:
            if row.state == SOUND:
                row.state = BAD_BODY
            return self.set_null(number)
        if not self.values.reserve_besides(len(body)):
            return False
        memcpy(self.values.data + self.values.length, PyBytes_AS_STRING(body), len(body))
        self.values.length += len(body)
        return True

    cdef Failure fill_map(self, const Row *rows, int64_t count) noexcept nogil:
        cdef int32_t found, j
        cdef int64_t i
        for i in range(count):
            if rows[i].state == NO_RECORD:
                if not self.set_null(self.rows + i):
                    return NO_MEMORY
            else:
                found = split(&rows[i].view, self.pieces)
                for j in range(found):
                    if not self.put_entry(&self.pieces[j]):
                        return NO_MEMORY
            if self.values.length > INT32_MAX or self.names.length > INT32_MAX:
                return TOO_LARGE
            put_i32(self.offsets, self.name_offsets.length // 4 - 1)
        return NOTHING

    cdef bint put_entry(self, const Piece *piece) noexcept nogil:
        return (
            put_text(self.names, piece.name.at, piece.name.length)
            and put_i32(self.name_offsets, self.names.length)
            and put_text(self.values, piece.value.at, piece.value.length)
            and put_i32(self.entry_offsets, self.values.length)
        )

    cdef bint put_json(self, const RecordView *view) noexcept nogil:
        cdef int32_t found = split(view, self.pieces)
        cdef int32_t j
        put_byte(self.values, c"{")
        for j in range(found):
            if j:
                put_byte(self.values, c",")
            if not put_quoted(self.values, self.pieces[j].name.at, self.pieces[j].name.length):
                return False
            put_byte(self.values, c":")
            if not put_quoted(self.values, self.pieces[j].value.at,
                              self.pieces[j].value.length):
                return False
        put_byte(self.values, c"}")
        return True


cdef bint same_room(ColumnBuffer buffer, ColumnBuffer other) noexcept nogil:
    return buffer.reserve(other.capacity - buffer.length)


cdef int begin_offsets(ColumnBuffer offsets) except -1:
    if not offsets.reserve(4):
        raise MemoryError()
    put_i32(offsets, 0)
    return 0


cdef bytes decompressed(const RecordView *view):
    if view.sys_flag & COMPRESSOR_MASK not in (0, COMPRESSOR_ZLIB):
        return None
    return inflate(view.body[:view.body_length])
