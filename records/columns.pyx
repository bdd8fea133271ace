"""Bytes of records to columns: chunks of rows, column by column, without the GIL.

A chunk of records is first looked at once (`Row`), rows that the filter refuses fall out, then
each column takes what it needs from the rows. Only columns that ask for it touch a body. The
buffers that come out are laid out as Arrow wants them.
"""

cimport cython
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy, memset
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8

from congreve.records cimport layout
from congreve.records.cursor cimport load_i32, load_i64
from congreve.records.host cimport HOST_TEXT_MAX, Host, MESSAGE_ID_MAX, host_text, put_message_id
from congreve.records.record cimport RECORD_OK, RecordView, check, tags_code

import zlib

from congreve.records.errors import CorruptRecordError, RecordError

cdef extern from * nogil:
    void __builtin_prefetch(const void *at)


cdef enum:
    CHUNK = 256             # rows that stay in the cache from the first look to the last column
    AHEAD = 6               # rows whose bytes are fetched before they are looked at
    PIECES_MAX = 8192       # of "k=v" with a separator, as many as PROPERTIES_MAX allows
    JSON_GROWTH = 6         # a control character becomes \u00XX

cdef enum State:
    SOUND
    NO_RECORD       # what lies there is no record, or another one
    BAD_CRC
    BAD_BODY        # it cannot be decompressed

STATES = (
    None,
    "no record: size, magic, physical offset or a length is wrong",
    "the body's CRC is wrong",
    "the body cannot be decompressed",
)
# A body that grows beyond this is no message but an attack.
BODY_MAX = 1 << 28
COMPRESSOR_MASK = 0x700
COMPRESSOR_ZLIB = 0x300

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

cdef struct Text:
    const uint8_t *at       # NULL where there is none
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

cdef enum Failure:
    NOTHING = 0
    NO_MEMORY = -1
    TOO_LARGE = -2          # Arrow's offsets have 32 bits


@cython.final
cdef class ColumnBuffer:
    cdef uint8_t *data
    cdef int64_t length
    cdef int64_t capacity
    cdef Py_ssize_t shape[1]
    cdef Py_ssize_t strides[1]

    def __dealloc__(self):
        free(self.data)

    def __len__(self):
        return self.length

    cdef bint reserve(self, int64_t more) noexcept nogil:
        """Room for `more` bytes behind those that are there; False without memory."""
        cdef int64_t wanted = self.length + more
        cdef void *data
        if wanted <= self.capacity:
            return True
        wanted = max(wanted, 2 * self.capacity)
        data = realloc(self.data, wanted)
        if data == NULL:
            return False
        self.data = <uint8_t *> data
        self.capacity = wanted
        return True

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        if flags & PyBUF_WRITABLE:
            raise BufferError("columns are read-only")
        self.shape[0] = self.length
        self.strides[0] = 1
        buffer.buf = self.data if self.data != NULL else <void *> self.shape
        buffer.obj = self
        buffer.len = self.length
        buffer.itemsize = 1
        buffer.readonly = True
        buffer.ndim = 1
        buffer.format = NULL
        buffer.shape = self.shape
        buffer.strides = self.strides
        buffer.suboffsets = NULL
        buffer.internal = NULL


cdef inline bint put_i32(ColumnBuffer buffer, int64_t value) noexcept nogil:
    (<int32_t *> (buffer.data + buffer.length))[0] = <int32_t> value
    buffer.length += 4
    return True


cdef bint is_ascii(const uint8_t *at, int64_t length) noexcept nogil:
    cdef uint64_t word
    cdef uint64_t seen = 0
    while length >= 8:
        memcpy(&word, at, 8)
        seen |= word
        at += 8
        length -= 8
    while length > 0:
        seen |= <uint64_t> at[0]
        at += 1
        length -= 1
    return not seen & 0x8080808080808080u


cdef bytes valid_utf8(const uint8_t *at, int64_t length):
    """What is no UTF-8 becomes U+FFFD, as the record codec has it; None where all is well."""
    try:
        PyUnicode_DecodeUTF8(<const char *> at, length, NULL)
        return None
    except UnicodeDecodeError:
        return PyUnicode_DecodeUTF8(<const char *> at, length, "replace").encode()


cdef bint put_foreign(ColumnBuffer values, const uint8_t *at, int64_t length) noexcept with gil:
    """Text beyond ASCII; room for `length` bytes was made, not for what takes more."""
    cdef bytes repaired
    try:
        repaired = valid_utf8(at, length)
    except MemoryError:
        return False
    if repaired is None:
        memcpy(values.data + values.length, at, length)
        values.length += length
        return True
    # the room made so far is wanted by what follows
    if not values.reserve(values.capacity - values.length + len(repaired)):
        return False
    memcpy(values.data + values.length, PyBytes_AS_STRING(repaired), len(repaired))
    values.length += len(repaired)
    return True


cdef inline bint put_text(ColumnBuffer values, const uint8_t *at, int64_t length) noexcept nogil:
    if length > 0:
        if not is_ascii(at, length):
            return put_foreign(values, at, length)
        memcpy(values.data + values.length, at, length)
        values.length += length
    return True


cdef inline bint same(const Text *a, const Text *b) noexcept nogil:
    return a.length == b.length and memcmp(a.at, b.at, a.length) == 0


# The properties of one record; of equal names the last wins, as in Java's map.
cdef int32_t split(const RecordView *view, Piece *pieces) noexcept nogil:
    cdef const uint8_t *at = view.properties
    cdef const uint8_t *end = at + view.properties_length
    cdef const uint8_t *stop
    cdef const uint8_t *value
    cdef Piece *piece
    cdef int32_t count = 0
    cdef int32_t i
    while at < end:
        stop = <const uint8_t *> memchr(at, layout.PROPERTY_SEPARATOR, end - at)
        if stop == NULL:
            stop = end
        value = <const uint8_t *> memchr(at, layout.NAME_VALUE_SEPARATOR, stop - at)
        if value != NULL and value > at and value + 1 < stop:
            piece = &pieces[count]
            piece.name.at = at
            piece.name.length = <int32_t> (value - at)
            for i in range(count):
                if same(&pieces[i].name, &piece.name):
                    piece = &pieces[i]
                    break
            else:
                count += 1
            piece.value.at = value + 1
            piece.value.length = <int32_t> (stop - value - 1)
        at = stop + 1
    return count


# TAGS, KEYS and UNIQ_KEY in one walk.
cdef void find_names(Row *row) noexcept nogil:
    cdef const uint8_t *at = row.view.properties
    cdef const uint8_t *end = at + row.view.properties_length
    cdef const uint8_t *stop
    cdef Text *found
    while at < end:
        stop = <const uint8_t *> memchr(at, layout.PROPERTY_SEPARATOR, end - at)
        if stop == NULL:
            stop = end
        found = NULL
        if stop - at > 5 and at[4] == layout.NAME_VALUE_SEPARATOR:
            if memcmp(at, b"TAGS", 4) == 0:
                found = &row.tags
            elif memcmp(at, b"KEYS", 4) == 0:
                found = &row.keys
            if found != NULL:
                found.at = at + 5
        elif (stop - at > 9 and at[8] == layout.NAME_VALUE_SEPARATOR
                and memcmp(at, b"UNIQ_KEY", 8) == 0):
            found = &row.unique_key
            found.at = at + 9
        if found != NULL:
            found.length = <int32_t> (stop - found.at)
        at = stop + 1


cdef int32_t put_offset_id(uint8_t *at, const RecordView *view) noexcept nogil:
    cdef Host host
    host.length = view.store_host_length - 4
    memcpy(host.address, view.store_host, host.length)
    host.port = load_i32(view.store_host + host.length)
    return <int32_t> (put_message_id(at, &host, view.physical_offset) - at)


cdef inline int64_t number_of(Kind kind, const Row *row) noexcept nogil:
    if kind == BORN_TIMESTAMP:
        return row.view.born_timestamp * 1000
    if kind == STORE_TIMESTAMP:
        return row.view.store_timestamp * 1000
    if kind == QUEUE_OFFSET:
        return row.view.queue_offset
    if kind == PHYSICAL_OFFSET:
        return row.view.physical_offset
    if kind == TAGS_CODE:
        return row.tags_code
    if kind == STORE_SIZE:
        return row.view.size
    if kind == QUEUE_ID:
        return row.view.queue_id
    if kind == FLAG:
        return row.view.flag
    if kind == SYS_FLAG:
        return row.view.sys_flag
    if kind == BODY_CRC:
        return row.view.body_crc
    return row.view.reconsume_times


cdef inline bint known_without_record(Kind kind) noexcept nogil:
    return (
        kind == QUEUE_OFFSET or kind == PHYSICAL_OFFSET or kind == STORE_SIZE or kind == TAGS_CODE
    )


@cython.final
cdef class Column:
    # values of a fixed width, or text and bytes behind 32-bit offsets; a map has names too
    cdef readonly str name
    cdef readonly int64_t rows
    cdef readonly int64_t null_count
    cdef readonly ColumnBuffer validity
    cdef readonly ColumnBuffer offsets
    cdef readonly ColumnBuffer values
    cdef readonly ColumnBuffer entry_offsets
    cdef readonly ColumnBuffer name_offsets
    cdef readonly ColumnBuffer names
    cdef Kind kind
    cdef int32_t width              # 0 where offsets tell
    cdef bint decompress
    cdef Piece *pieces
    cdef int32_t last_host_length   # of which `host` is the text
    cdef uint8_t host[HOST_TEXT_MAX]
    cdef int32_t host_length
    cdef uint8_t last_host_bytes[layout.HOST_V6]

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
        """Take `count` rows, whose records have `bytes` bytes together."""
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
        cdef int64_t i
        for i in range(count):
            if rows[i].state == NO_RECORD and not known_without_record(self.kind):
                if not self.set_null(self.rows + i):
                    return NO_MEMORY
            if self.width == 4:
                narrow[i] = <int32_t> number_of(self.kind, &rows[i])
            else:
                wide[i] = number_of(self.kind, &rows[i])
        self.values.length += count * self.width
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
        """A text of the properties, or an id that stands in for one that is not there."""
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
        # One producer's messages come in a row.
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
        if not self.values.reserve(self.values.capacity - self.values.length + len(body)):
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
            if not put_quoted(self.values, &self.pieces[j].name):
                return False
            put_byte(self.values, c":")
            if not put_quoted(self.values, &self.pieces[j].value):
                return False
        put_byte(self.values, c"}")
        return True


cdef inline void put_byte(ColumnBuffer values, uint8_t byte) noexcept nogil:
    values.data[values.length] = byte
    values.length += 1


cdef bint put_quoted(ColumnBuffer values, const Text *text) noexcept nogil:
    cdef const uint8_t *at = text.at
    cdef const uint8_t *end = at + text.length
    cdef const uint8_t *plain
    put_byte(values, c'"')
    while at < end:
        plain = at
        while at < end and at[0] >= 0x20 and at[0] != c'"' and at[0] != c"\\":
            at += 1
        if not put_text(values, plain, at - plain):
            return False
        if at < end:
            put_byte(values, c"\\")
            if at[0] >= 0x20:
                put_byte(values, at[0])
            else:
                memcpy(values.data + values.length, b"u00", 3)
                values.length += 3
                put_byte(values, b"0123456789abcdef"[at[0] >> 4])
                put_byte(values, b"0123456789abcdef"[at[0] & 15])
            at += 1
    put_byte(values, c'"')
    return True


cdef int begin_offsets(ColumnBuffer offsets) except -1:
    if not offsets.reserve(4):
        raise MemoryError()
    put_i32(offsets, 0)
    return 0


cdef bytes decompressed(const RecordView *view):
    if view.sys_flag & COMPRESSOR_MASK not in (0, COMPRESSOR_ZLIB):
        return None
    stream = zlib.decompressobj()
    try:
        body = stream.decompress(view.body[:view.body_length], BODY_MAX)
    except zlib.error:
        return None
    return body if stream.eof else None


@cython.final
cdef class RecordColumns:
    cdef readonly int64_t rows
    cdef readonly int64_t bytes_touched
    cdef readonly list corrupt
    cdef tuple names
    cdef tuple columns
    cdef tuple tags
    cdef bint verify_crc
    cdef bint keep_corrupt
    cdef bint decompress
    cdef bint wants_names
    cdef bint wants_body
    cdef bint wants_code
    cdef Row *chunk

    def __cinit__(self, names, *, tags=None, bint verify_crc=False, bint keep_corrupt=False,
                  bint decompress=True):
        self.names = tuple(names)
        unknown = [name for name in self.names if name not in KINDS]
        if unknown:
            raise RecordError(f"no column is named {unknown[0]!r}: there are {', '.join(KINDS)}")
        self.tags = None if tags is None else tuple([tag.encode() for tag in tags])
        self.verify_crc, self.keep_corrupt, self.decompress = verify_crc, keep_corrupt, decompress
        self.wants_names = bool({"tags", "keys", "msgId"}.intersection(names)) or tags is not None
        self.wants_body = verify_crc or "body" in self.names
        self.wants_code = "tagsCode" in self.names
        self.chunk = <Row *> malloc(CHUNK * sizeof(Row))
        if self.chunk == NULL:
            raise MemoryError()
        self.begin()

    def __dealloc__(self):
        free(self.chunk)

    cdef int begin(self) except -1:
        self.columns = tuple([Column(name, KINDS[name], self.decompress) for name in self.names])
        self.corrupt = []
        self.rows = 0
        return 0

    def take(self):
        columns = {column.name: column for column in self.columns}
        self.begin()
        return columns

    def add_entries(self, log, int64_t base_offset, physical_offsets, sizes, queue_offsets,
                    tags_codes):
        cdef Py_buffer data, physical, size, queue, codes
        cdef int64_t count = len(physical_offsets)
        cdef int64_t start, stop
        cdef int64_t before = self.rows
        arrays = (physical_offsets, sizes, queue_offsets, tags_codes)
        if [array.dtype.str for array in arrays] != ["<i8", "<i4", "<i8", "<i8"]:
            raise TypeError("entries are int64, int32, int64 and int64 arrays")
        if {len(array) for array in arrays} != {count}:
            raise ValueError("each entry has a physical offset, a size, an offset and a tags code")
        PyObject_GetBuffer(log, &data, PyBUF_SIMPLE)
        PyObject_GetBuffer(physical_offsets, &physical, PyBUF_SIMPLE)
        PyObject_GetBuffer(sizes, &size, PyBUF_SIMPLE)
        PyObject_GetBuffer(queue_offsets, &queue, PyBUF_SIMPLE)
        PyObject_GetBuffer(tags_codes, &codes, PyBUF_SIMPLE)
        try:
            for start in range(0, count, CHUNK):
                stop = min(start + CHUNK, count)
                with nogil:
                    look_at_entries(
                        self.chunk, <const uint8_t *> data.buf, data.len, base_offset,
                        <const int64_t *> physical.buf, <const int32_t *> size.buf,
                        <const int64_t *> queue.buf, <const int64_t *> codes.buf, start, stop,
                        count, self.verify_crc,
                    )
                self.fill(stop - start)
        finally:
            PyBuffer_Release(&data)
            PyBuffer_Release(&physical)
            PyBuffer_Release(&size)
            PyBuffer_Release(&queue)
            PyBuffer_Release(&codes)
        return self.rows - before

    def add_records(self, buffer, int64_t begin_offset=0, int64_t end_offset=INT64_MAX):
        cdef Py_buffer data
        cdef int64_t position = 0
        cdef int64_t before = self.rows
        cdef int64_t count
        PyObject_GetBuffer(buffer, &data, PyBUF_SIMPLE)
        try:
            while position < data.len:
                with nogil:
                    count = look_at_records(
                        self.chunk, <const uint8_t *> data.buf, data.len, &position,
                        self.verify_crc, self.wants_code, begin_offset, end_offset,
                    )
                if count < 0:
                    raise RecordError(
                        f"no valid record at byte {position} of {data.len}: "
                        "magic, size or a length is wrong"
                    )
                self.fill(count)
        finally:
            PyBuffer_Release(&data)
        return self.rows - before

    cdef int fill(self, int64_t count) except -1:
        """All columns from the first `count` rows of the chunk."""
        cdef Failure failure
        cdef Column column
        cdef int64_t bytes = 0
        with nogil:
            bytes = self.prepare(count)
        if self.tags is not None:
            count = self.pass_tags(count)
        for column in self.columns:
            with nogil:
                failure = column.fill(self.chunk, count, bytes)
            if failure == NO_MEMORY:
                raise MemoryError()
            if failure == TOO_LARGE:
                raise RecordError(
                    f"column {column.name} of {column.rows} rows is over 2 GiB: "
                    "take fewer records at a time"
                )
        self.note_corrupt(count)
        self.rows += count
        return 0

    cdef int64_t prepare(self, int64_t count) noexcept nogil:
        """Find the names, count what is touched; bytes of all records."""
        cdef int64_t bytes = 0
        cdef int64_t i
        cdef Row *row
        for i in range(count):
            row = &self.chunk[i]
            if row.state == NO_RECORD:
                continue
            if self.wants_names:
                row.tags.at = row.keys.at = row.unique_key.at = NULL
                find_names(row)
            bytes += row.view.size
            self.bytes_touched += row.view.size
            if not self.wants_body:
                self.bytes_touched -= row.view.body_length
        return bytes

    cdef int64_t pass_tags(self, int64_t count) except -1:
        """Rows with one of the tags, and damaged ones, move to the front; how many."""
        cdef int64_t passed = 0
        cdef int64_t i
        cdef bytes tag
        cdef Text wanted
        cdef Row *row
        for i in range(count):
            row = &self.chunk[i]
            for tag in self.tags:
                wanted.at = <const uint8_t *> PyBytes_AS_STRING(tag)
                wanted.length = <int32_t> len(tag)
                if row.state == NO_RECORD or (
                    row.tags.at != NULL and same(&row.tags, &wanted)
                ):
                    if passed != i:
                        self.chunk[passed] = row[0]
                    passed += 1
                    break
        return passed

    cdef int note_corrupt(self, int64_t count) except -1:
        cdef int64_t i
        for i in range(count):
            if self.chunk[i].state != SOUND:
                reason = STATES[<int> self.chunk[i].state]
                if not self.keep_corrupt:
                    raise CorruptRecordError(
                        f"the message at queue offset {self.chunk[i].view.queue_offset}, physical "
                        f"offset {self.chunk[i].view.physical_offset}: {reason}"
                    )
                self.corrupt.append((self.rows + i, reason))
        return 0


# An expected record that is not there keeps what its entry says of it.
cdef void look_at_entries(Row *chunk, const uint8_t *data, int64_t length, int64_t base,
                          const int64_t *physical, const int32_t *sizes, const int64_t *queue,
                          const int64_t *codes, int64_t start, int64_t stop, int64_t count,
                          bint verify_crc) noexcept nogil:
    cdef int64_t i, place, next
    cdef Row *row = chunk
    for i in range(start, stop):
        if i + AHEAD < count:
            next = physical[i + AHEAD] - base
            if 0 <= next < length - sizes[i + AHEAD]:
                __builtin_prefetch(data + next)
                __builtin_prefetch(data + next + 64)
                __builtin_prefetch(data + next + sizes[i + AHEAD] - 64)
        place = physical[i] - base
        row.state = look_at(row, data, length, place, physical[i], verify_crc)
        if row.state != NO_RECORD and (
            row.view.size != sizes[i] or row.view.queue_offset != queue[i]
        ):
            row.state = NO_RECORD
        if row.state == NO_RECORD:
            row.view.physical_offset = physical[i]
            row.view.size = sizes[i]
            row.view.queue_offset = queue[i]
        row.tags_code = codes[i]
        row += 1


# At most CHUNK records from `position` on, which moves; -1 where there is none.
cdef int64_t look_at_records(Row *chunk, const uint8_t *data, int64_t length, int64_t *position,
                             bint verify_crc, bint wants_code, int64_t begin_offset,
                             int64_t end_offset) noexcept nogil:
    cdef int64_t count = 0
    cdef Row *row = chunk
    while count < CHUNK and position[0] < length:
        if length - position[0] < layout.RECORD_FIXED:
            return -1
        row.state = look_at(
            row, data, length, position[0],
            load_i64(data + position[0] + layout.AT_PHYSICAL_OFFSET), verify_crc,
        )
        if row.state == NO_RECORD:
            return -1
        position[0] += row.view.size
        if begin_offset <= row.view.queue_offset < end_offset:
            if wants_code:
                row.tags_code = tags_code(row.view.properties, row.view.properties_length)
            row += 1
            count += 1
    return count


cdef State look_at(Row *row, const uint8_t *data, int64_t length, int64_t place,
                   int64_t physical_offset, bint verify_crc) noexcept nogil:
    if not 0 <= place < length:
        return NO_RECORD
    if check(data + place, length - place, physical_offset, verify_crc, &row.view) == RECORD_OK:
        return SOUND
    if verify_crc and check(data + place, length - place, physical_offset, False,
                            &row.view) == RECORD_OK:
        return BAD_CRC
    return NO_RECORD
