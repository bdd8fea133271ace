"""Bytes of records to columns: chunks of rows, column by column, without the GIL.

The pass parses each record of a chunk once (`Row`) and drops the rows that do not pass the filter.
Then each column takes its values from the rows. Only columns that need bodies read them.
"""

cimport cython
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING

from congreve.base.cursor cimport load_i64, prefetch
from congreve.records cimport layout
from congreve.records.columns.column cimport CHUNK, NO_MEMORY, TOO_LARGE, Column, Failure
from congreve.records.columns.row cimport (
    NO_RECORD, SOUND, WANT_KEYS, WANT_TAGS, WANT_UNIQUE_KEY, Row, Text, find_names, look_at, same,
)
from congreve.records.filter.record_filter cimport FilterMemory, RecordFilter
from congreve.records.record cimport tags_code

from congreve.records.columns.column import KINDS
from congreve.records.errors import CorruptRecordError, RecordError

__all__ = ["KINDS", "RecordColumns"]

cdef enum:
    AHEAD = 6               # rows whose bytes are prefetched before they are parsed

REASONS = (
    None,
    "no record: size, magic, physical offset or a length is wrong",
    "the body's CRC is wrong",
    "the body cannot be decompressed",
)


@cython.final
cdef class RecordColumns:
    """Builds columns from stored records, or from the body of a pull, without the GIL.

    columns.arrow turns them into Arrow arrays without a copy. `names` are names of KINDS; another
    name raises RecordError. With `tags` it takes only messages with one of these tags, with
    `records` only those that the filter accepts. A damaged record raises CorruptRecordError, or
    with `keep_corrupt` becomes a row without values. It decompresses bodies that a client
    compressed; bodyCRC and storeSize are those of the stored bytes.
    """

    cdef readonly int64_t rows
    """Rows since the last take()."""
    cdef readonly int64_t bytes_read
    """Bytes of records read so far, including bodies if a column or the CRC check needs them."""
    cdef readonly list corrupt
    """(row, reason) of each damaged record since the last take()."""
    cdef tuple names
    cdef tuple columns
    cdef tuple tags
    cdef RecordFilter records
    cdef FilterMemory filter_memory
    cdef bint verify_crc
    cdef bint keep_corrupt
    cdef bint decompress
    cdef int32_t wanted_names
    cdef bint wants_body
    cdef bint wants_code
    cdef Row *chunk

    def __cinit__(self, names, *, tags=None, RecordFilter records=None, bint verify_crc=False,
                  bint keep_corrupt=False, bint decompress=True):
        self.names = tuple(names)
        unknown = [name for name in self.names if name not in KINDS]
        if unknown:
            raise RecordError(f"no column is named {unknown[0]!r}: there are {', '.join(KINDS)}")
        self.tags = None if tags is None else tuple([tag.encode() for tag in tags])
        self.records = records
        self.filter_memory = FilterMemory()
        if records is not None and not self.filter_memory.fit(records):
            raise MemoryError()
        self.verify_crc, self.keep_corrupt, self.decompress = verify_crc, keep_corrupt, decompress
        if "tags" in self.names or tags is not None:
            self.wanted_names |= WANT_TAGS
        if "keys" in self.names:
            self.wanted_names |= WANT_KEYS
        if "msgId" in self.names:
            self.wanted_names |= WANT_UNIQUE_KEY
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
        """The columns so far, by name; further rows go to new columns."""
        cdef Column fresh, full
        taken = self.columns
        self.begin()
        for fresh, full in zip(self.columns, taken):
            if not fresh.make_room_of(full):
                raise MemoryError()
        return {column.name: column for column in taken}

    def add_entries(self, log, int64_t base_offset, physical_offsets, sizes, queue_offsets,
                    tags_codes):
        """Add the records of these entries of a queue, and return their number.

        `log` holds the log's bytes from `base_offset` on; the other arguments are contiguous arrays
        of equal length: int64 physical offsets, int32 sizes, int64 queue offsets and tags codes.
        Raises CorruptRecordError for an entry without a record of its size and queue offset,
        RecordError if a column grows beyond 2 GiB, TypeError and ValueError for arrays of another
        type or length.
        """
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
        """Add consecutive records with queue offsets in [begin, end), and return their number.

        Raises RecordError if the bytes are not records.
        """
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
        """Fill all columns from the first `count` rows of the chunk."""
        cdef Failure failure
        cdef Column column
        cdef int64_t bytes = 0
        with nogil:
            bytes = self.prepare(count)
        if self.tags is not None:
            count = self.pass_tags(count)
        if self.records is not None:
            with nogil:
                count = self.pass_records(count)
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
        """Find the properties of each row; returns the bytes of all records."""
        cdef int64_t bytes = 0
        cdef int64_t i
        cdef Row *row
        for i in range(count):
            row = &self.chunk[i]
            if row.state == NO_RECORD:
                continue
            if self.wanted_names:
                find_names(row, self.wanted_names)
            bytes += row.view.size
            self.bytes_read += row.view.size
            if not self.wants_body:
                self.bytes_read -= row.view.body_length
        return bytes

    cdef int64_t pass_tags(self, int64_t count) except -1:
        """Move rows with one of the tags, and damaged rows, to the front; returns their number."""
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

    cdef int64_t pass_records(self, int64_t count) noexcept nogil:
        """Move rows that pass the filter, and damaged rows, to the front; returns their number."""
        cdef int64_t passed = 0
        cdef int64_t i
        cdef Row *row
        for i in range(count):
            row = &self.chunk[i]
            if row.state == NO_RECORD or self.records.accepts_properties(
                row.view.properties, row.view.properties_length, self.filter_memory
            ):
                if passed != i:
                    self.chunk[passed] = row[0]
                passed += 1
        return passed

    cdef int note_corrupt(self, int64_t count) except -1:
        cdef int64_t i
        for i in range(count):
            if self.chunk[i].state != SOUND:
                reason = REASONS[<int> self.chunk[i].state]
                if not self.keep_corrupt:
                    raise CorruptRecordError(
                        f"the message at queue offset {self.chunk[i].view.queue_offset}, physical "
                        f"offset {self.chunk[i].view.physical_offset}: {reason}"
                    )
                self.corrupt.append((self.rows + i, reason))
        return 0


# The row of a missing record keeps the values of its queue entry.
cdef void look_at_entries(Row *chunk, const uint8_t *data, int64_t length, int64_t base,
                          const int64_t *physical, const int32_t *sizes, const int64_t *queue,
                          const int64_t *codes, int64_t start, int64_t stop, int64_t count,
                          bint verify_crc) noexcept nogil:
    cdef int64_t i, next
    cdef Row *row = chunk
    for i in range(start, stop):
        if i + AHEAD < count:
            next = physical[i + AHEAD] - base
            if 0 <= next < length - sizes[i + AHEAD]:
                prefetch(data + next)
                prefetch(data + next + 64)
                prefetch(data + next + sizes[i + AHEAD] - 128)
                prefetch(data + next + sizes[i + AHEAD] - 64)
        look_at(row, data, length, physical[i] - base, physical[i], verify_crc)
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


# Reads at most CHUNK records from `position` on, and advances it; -1 for an invalid record.
cdef int64_t look_at_records(Row *chunk, const uint8_t *data, int64_t length, int64_t *position,
                             bint verify_crc, bint wants_code, int64_t begin_offset,
                             int64_t end_offset) noexcept nogil:
    cdef int64_t count = 0
    cdef Row *row = chunk
    while count < CHUNK and position[0] < length:
        if length - position[0] < layout.RECORD_FIXED:
            return -1
        look_at(
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
