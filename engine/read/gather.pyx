"""Reads a queue: from its entries to the bytes of a response, in one pass without the GIL."""

cimport cython
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from congreve.base.atomic cimport load_acquire
from congreve.base.cursor cimport load_i32, load_i64, prefetch
from congreve.engine.format cimport CQ_AT_SIZE, CQ_AT_TAGS_CODE, CQ_ENTRY, CQ_FILLER_SIZE
from congreve.engine.log.commit_log cimport CommitLog
from congreve.engine.queue.consume_queue cimport ConsumeQueue
from congreve.io_backends.backend cimport Segment
from congreve.io_backends.mapping cimport Mapping
from congreve.io_backends.pages cimport in_memory
from congreve.records.record cimport RECORD_OK, RecordView, check
from congreve.records.layout cimport (
    AT_MAGIC,
    AT_PHYSICAL_OFFSET,
    AT_QUEUE_ID,
    AT_QUEUE_OFFSET,
    AT_SIZE,
    RECORD_FIXED,
    RECORD_MAGIC,
)

# Entries that one call looks at before it says "nothing matched so far" (D20; the reference: 800).
cdef int64_t SCAN_MAX = 160_000
# The same where each record has to be looked into, which costs far more,
cdef int64_t RECORD_SCAN_MAX = 16_000
# and the work (FilterMemory.work) after which the next record is left to the next call.
cdef int64_t FILTER_WORK_MAX = 2_000_000
# Pieces of at least this many bytes leave as views; smaller ones are cheaper to copy than to send
# one by one.
cdef int64_t VIEW_MIN = 4096

# What was written last is in memory, behind every backend.
cdef int64_t WARM_TAIL = 32 << 20
cdef int64_t CHUNK = 256 << 10  # bytes of the log whose residency one mincore() asks for
cdef int64_t WARM_MS = 500  # time for which its result counts

cdef enum:
    AHEAD = 4       # entries between the one looked at and the one whose record is fetched


# Whether readers see the first record of the entries [at, stop), which may begin with filler; `at`
# becomes the entry behind it.
cdef bint is_shown(const uint8_t *entries, int64_t *at, int64_t stop,
                   int64_t shown) noexcept nogil:
    cdef const uint8_t *entry
    while at[0] < stop:
        entry = entries + at[0] * CQ_ENTRY
        at[0] += 1
        if load_i32(entry + CQ_AT_SIZE) != CQ_FILLER_SIZE:
            return load_i64(entry) + load_i32(entry + CQ_AT_SIZE) <= shown
    return False


cdef bint is_unchecked(ConsumeQueue queue, int64_t file_number) except -1:
    cdef set unchecked = queue.unchecked
    return unchecked is not None and file_number in unchecked


@cython.final
cdef class TagFilter:
    """A set of tag hashes (signed 32 bits); entries with one of them pass.

    (RocketMQ: ExpressionMessageFilter.)
    """

    def __cinit__(self, codes):
        cdef Py_ssize_t i
        ordered = sorted(codes)
        self.codes = <int32_t *> PyMem_Malloc(max(len(ordered), 1) * sizeof(int32_t))
        if self.codes == NULL:
            raise MemoryError()
        self.count = len(ordered)
        for i in range(self.count):
            self.codes[i] = ordered[i]

    def __dealloc__(self):
        PyMem_Free(self.codes)

    cdef bint accepts(self, int64_t tags_code) noexcept nogil:
        cdef int32_t wanted = <int32_t> tags_code
        cdef Py_ssize_t low = 0
        cdef Py_ssize_t high = self.count
        cdef Py_ssize_t middle
        while low < high:
            middle = (low + high) // 2
            if self.codes[middle] < wanted:
                low = middle + 1
            else:
                high = middle
        return low < self.count and self.codes[low] == wanted


@cython.final
cdef class Limits:
    """How much one answer may hold (MessageStoreConfig.maxTransfer*): bytes and messages, within
    `memory_window` bytes of the log's end and farther behind it. One message always fits.
    """

    def __cinit__(self, *, int64_t memory_bytes, int32_t memory_count, int64_t disk_bytes,
                  int32_t disk_count, int64_t memory_window):
        self.memory_bytes = memory_bytes
        self.memory_count = max(memory_count, 1)
        self.disk_bytes = disk_bytes
        self.disk_count = max(disk_count, 1)
        self.memory_window = memory_window


@cython.final
cdef class Gather:
    """One read of a queue and its result, for compiled callers (gather.pxd).

    (RocketMQ: GetMessageResult.)
    """

    def __cinit__(self, CommitLog log, Limits limits, *, bint memory_only=False):
        self.log = log
        self.limits = limits
        self.memory_only = memory_only
        self.filter_memory = FilterMemory()
        self.spans = <Span *> PyMem_Malloc(
            max(limits.memory_count, limits.disk_count) * sizeof(Span)
        )
        if self.spans == NULL:
            raise MemoryError()

    def __dealloc__(self):
        PyMem_Free(self.spans)
        PyMem_Free(self.table)

    cdef int look(self, ConsumeQueue queue, int64_t offset, int32_t max_count,
                  TagFilter tags, RecordFilter records) except -1:
        cdef int64_t end = load_acquire(&queue.max_offset)
        self.stored_end = end
        if self.log.hides(queue):
            end = queue.end_before(load_acquire(&self.log.shown), end)
        if self.begin(queue, offset, end):
            self.scan(queue, offset, max_count, tags, records)
        return 0

    cdef bint look_mapped(self, ConsumeQueue queue, const uint8_t *file, int64_t base,
                          int64_t offset, int32_t max_count, TagFilter tags,
                          RecordFilter records) noexcept nogil:
        cdef int64_t position = offset * CQ_ENTRY - base
        cdef int64_t log_end, wanted, in_file, scanned
        cdef int64_t end = load_acquire(&queue.max_offset)
        self.stored_end = end
        if self.log.hides(queue):
            end = self.end_in_file(queue, file, base)
            if end < 0:
                return False
        if not self.begin(queue, offset, end):
            return True
        # The end is read first: it is within the segments that the log has afterwards.
        log_end = load_acquire(&self.log.max_offset)
        if file == NULL or not 0 <= position < queue.file_size or self.is_behind():
            return False
        if queue.unchecked is not None or not self.begin_scan(queue, log_end, records):
            return False
        wanted = min(self.max_offset - offset, SCAN_MAX if records is None else RECORD_SCAN_MAX)
        in_file = min(wanted, (queue.file_size - position) // CQ_ENTRY)
        scanned = self.scan_file(file + position, in_file, max_count, tags, records)
        self.next_offset += scanned
        if self.count:
            self.status = GET_FOUND
        return scanned < in_file or in_file == wanted

    cdef bint is_behind(self) noexcept nogil:
        return self.segments is not self.log.segments

    cdef int64_t end_in_file(self, ConsumeQueue queue, const uint8_t *file,
                             int64_t base) noexcept nogil:
        cdef int64_t shown = load_acquire(&self.log.shown)
        cdef int64_t low = max(base // CQ_ENTRY, queue.min_offset), high = self.stored_end
        cdef int64_t first = low, step = 1, middle, at
        if file == NULL or not low < high <= (base + queue.file_size) // CQ_ENTRY:
            return -1
        file -= base    # the address that entry 0 of the queue would have
        while low < high:
            # From the end in growing steps at first: few entries are hidden.
            middle = at = max(high - step, low) if step else (low + high) // 2
            if is_shown(file, &at, high, shown):
                low, step = at, 0
            else:
                high = middle
                step *= 2
        return low if low > first or first == queue.min_offset else -1

    cdef bint begin(self, ConsumeQueue queue, int64_t offset, int64_t end) noexcept nogil:
        self.min_offset = queue.min_offset
        self.max_offset = end
        self.count = self.span_count = 0
        self.size = self.filter_memory.work = 0
        self.suggest_slave = False
        self.next_offset = offset
        if self.stored_end == 0:
            self.status = GET_NO_MESSAGE_IN_QUEUE
            self.next_offset = 0
        elif offset < self.min_offset:
            self.status = GET_OFFSET_TOO_SMALL
            self.next_offset = self.min_offset
        elif self.max_offset <= offset <= self.stored_end:
            # Behind hidden entries, too: a reader that has seen them elsewhere does not go back.
            self.status = GET_OFFSET_OVERFLOW_ONE
        elif offset > self.max_offset:
            self.status = GET_OFFSET_OVERFLOW_BADLY
            self.next_offset = self.max_offset
        else:
            return True
        return False

    cdef bint begin_scan(self, ConsumeQueue queue, int64_t log_end,
                         RecordFilter records) noexcept nogil:
        self.status = GET_NO_MATCHED_MESSAGE
        self.queue_id = queue.queue_id
        self.log_end = log_end
        self.cold_below = log_end - WARM_TAIL if self.memory_only else 0
        self.warm_number = -1
        return records is None or self.filter_memory.fit(records)

    cdef int scan(self, ConsumeQueue queue, int64_t offset, int32_t max_count,
                  TagFilter tags, RecordFilter records) except -1:
        cdef int64_t per_file = queue.file_size // CQ_ENTRY
        cdef int64_t most = SCAN_MAX if records is None else RECORD_SCAN_MAX
        cdef int64_t stop = min(self.max_offset, offset + most)
        cdef int64_t wanted, scanned
        cdef Mapping mapping
        cdef const uint8_t *entries
        self.refresh()
        if not self.begin_scan(queue, self.log_end, records):
            raise MemoryError()
        while self.next_offset < stop:
            # No other check finds a flipped bit in a tags code.
            if tags is not None and self.next_offset >= self.passes_before and is_unchecked(
                queue, self.next_offset // per_file
            ):
                if self.count == 0:
                    self.status = GET_DAMAGED
                break
            mapping = queue.mapping_at(self.next_offset // per_file * queue.file_size)
            if mapping is None:
                if self.next_offset == offset:
                    self.status = GET_OFFSET_FOUND_NULL
                    self.next_offset = queue.next_file_offset(offset)
                return 0
            wanted = min(stop, (self.next_offset // per_file + 1) * per_file) - self.next_offset
            entries = mapping.data + self.next_offset % per_file * CQ_ENTRY
            with nogil:
                scanned = self.scan_file(entries, wanted, max_count, tags, records)
            self.next_offset += scanned
            if scanned < wanted:
                break
        if self.count:
            self.status = GET_FOUND
        return 0

    cdef int64_t scan_file(self, const uint8_t *entries, int64_t count, int32_t max_count,
                           TagFilter tags, RecordFilter records) noexcept nogil:
        """Scan entries of one file; returns how many were handled."""
        cdef const uint8_t *entry = entries
        cdef const uint8_t *record
        cdef int64_t physical_offset = 0
        cdef int64_t i
        cdef int32_t size
        cdef int32_t segment = 0
        for i in range(count):
            if i + AHEAD < count:
                self.fetch(load_i64(entry + AHEAD * CQ_ENTRY), segment)
            physical_offset = load_i64(entry)
            size = load_i32(entry + CQ_AT_SIZE)
            self.suggest_slave = self.log_end - physical_offset > self.limits.memory_window
            if self.count and self.full(physical_offset, size, max_count):
                return i
            if self.filter_memory.work > FILTER_WORK_MAX:
                return i
            if tags is None or tags.accepts(load_i64(entry + CQ_AT_TAGS_CODE)):
                if physical_offset < self.cold_below and not self.is_warm(physical_offset, size):
                    if self.count == 0:
                        self.status = GET_COLD
                    return i
                record = self.find(physical_offset, size, self.next_offset + i, &segment)
                if record == NULL:
                    if size != CQ_FILLER_SIZE and self.next_offset + i >= self.passes_before:
                        if self.count == 0:
                            self.status = GET_DAMAGED
                        return i
                    if self.count == 0:
                        self.status = GET_MESSAGE_WAS_REMOVING
                elif records is None or records.accepts(record, size, self.filter_memory):
                    self.take(record, size, segment)
                elif self.count == 0:
                    self.status = GET_NO_MATCHED_MESSAGE
            entry += CQ_ENTRY
        return count

    cdef void fetch(self, int64_t physical_offset, int32_t segment) noexcept nogil:
        """Prefetch the head of a record into the processor's cache."""
        cdef int64_t place = physical_offset - self.log_begin
        if 0 <= place and physical_offset < self.log_end:
            place = self.place_in_segment(place, &segment)
            prefetch(self.table[segment].data + place)

    cdef bint full(self, int64_t physical_offset, int32_t size, int32_t max_count) noexcept nogil:
        """Whether a further message is too much (RocketMQ: isTheBatchFull)."""
        if self.count >= max_count:
            return True
        if self.log_end - physical_offset > self.limits.memory_window:
            return (
                self.count >= self.limits.disk_count or self.size + size > self.limits.disk_bytes
            )
        return (
            self.count >= self.limits.memory_count or self.size + size > self.limits.memory_bytes
        )

    cdef const uint8_t *find(self, int64_t physical_offset, int32_t size, int64_t offset,
                             int32_t *segment) noexcept nogil:
        """One record; NULL if the log has deleted it, or has other bytes there."""
        cdef int64_t place = physical_offset - self.log_begin
        cdef const uint8_t *record
        cdef RecordView view
        if place < 0 or self.segment_count == 0 or size < RECORD_FIXED:
            return NULL
        if physical_offset + size > self.log_end:
            return NULL
        place = self.place_in_segment(place, segment)
        if place + size > self.log.segment_size:
            return NULL
        record = self.table[segment[0]].data + place
        if (
            load_i32(record + AT_SIZE) != size or load_i32(record + AT_MAGIC) != RECORD_MAGIC
            or load_i64(record + AT_PHYSICAL_OFFSET) != physical_offset
            or load_i64(record + AT_QUEUE_OFFSET) != offset
            or load_i32(record + AT_QUEUE_ID) != self.queue_id
        ):
            return NULL
        if physical_offset < load_acquire(&self.log.unchecked_end) and (
            check(record, size, physical_offset, True, &view) != RECORD_OK
        ):
            return NULL
        return record

    cdef bint is_warm(self, int64_t physical_offset, int32_t size) noexcept nogil:
        """Whether a record can be read without waiting for the disk."""
        cdef int64_t number = physical_offset // CHUNK
        cdef int64_t last = (physical_offset + max(size, 1) - 1) // CHUNK
        if number == last == self.warm_number or physical_offset < self.log_begin:
            return True
        while number <= last:
            if not self.is_chunk_warm(number):
                self.cold_offset = max(number * CHUNK, self.log_begin)
                return False
            number += 1
        self.warm_number = last
        return True

    cdef bint is_chunk_warm(self, int64_t number) noexcept nogil:
        cdef WarmChunk *warm = &self.warm[number % WARM_CHUNKS]
        cdef int64_t now_ms = self.log.clock.now_ms()
        cdef int64_t start = max(number * CHUNK - self.log_begin, 0)
        cdef int64_t segment = start // self.log.segment_size
        cdef int64_t at = start % self.log.segment_size
        if warm.number == number and 0 <= now_ms - warm.seen_ms < WARM_MS:
            return True
        if segment >= self.segment_count:
            return True
        # A chunk never begins in one segment and ends in the next where sizes are powers of two;
        # elsewhere the rest is read as it comes.
        if not in_memory(self.table[segment].data + at, min(CHUNK, self.log.segment_size - at)):
            return False
        warm.number, warm.seen_ms = number, now_ms
        return True

    cdef void take(self, const uint8_t *record, int32_t size, int32_t segment) noexcept nogil:
        cdef Span *last = &self.spans[self.span_count - 1]
        if self.span_count and last.data + last.length == record and last.segment == segment:
            last.length += size
        else:
            last = &self.spans[self.span_count]
            last.data = record
            last.length = size
            last.segment = segment
            self.span_count += 1
        self.count += 1
        self.size += size

    cdef int refresh(self) except -1:
        """Read the current segments and the current end of the log."""
        cdef tuple segments = self.log.segments
        cdef Py_ssize_t i
        cdef Segment segment
        self.log_end = load_acquire(&self.log.max_offset)
        if segments is self.segments:
            return 0
        table = <SegmentAt *> PyMem_Realloc(self.table, (len(segments) + 1) * sizeof(SegmentAt))
        if table == NULL:
            raise MemoryError()
        self.table = table
        for i in range(len(segments)):
            segment = segments[i]
            table[i].base = segment.base_offset
            table[i].data = segment.data
            table[i].descriptor = DESCRIPTOR_UNKNOWN
        self.segments = segments
        self.segment_count = <int32_t> len(segments)
        self.log_begin = table[0].base if segments else 0
        return 0

    cdef bint in_views(self) noexcept nogil:
        return self.size >= self.span_count * VIEW_MIN

    cdef void copy_to(self, char *at) noexcept nogil:
        cdef Span *span
        cdef int32_t i
        for i in range(self.span_count):
            span = &self.spans[i]
            memcpy(at, span.data, span.length)
            at += span.length

    cdef list views(self):
        return [self.view(i, 0) for i in range(self.span_count)]

    cdef object view(self, int32_t i, int64_t skipped):
        cdef Span *span = &self.spans[i]
        cdef int64_t start = span.data - self.table[span.segment].data
        return memoryview(self.segments[span.segment])[start + skipped:start + span.length]

    cdef FilePart file_part(self) noexcept nogil:
        cdef Span *span = &self.spans[0]
        cdef SegmentAt *segment = &self.table[span.segment]
        cdef FilePart part
        if segment.descriptor == DESCRIPTOR_UNKNOWN:
            self.find_descriptor(span.segment)
        part.offset = span.data - segment.data
        # A segment that was removed from the log meanwhile may be recycled by now.
        part.descriptor = -1 if self.is_behind() else segment.descriptor
        return part

    cdef void find_descriptor(self, int32_t segment) noexcept with gil:
        if self.segments is self.log.segments:
            self.table[segment].descriptor = (<Segment> self.segments[segment]).descriptor()
