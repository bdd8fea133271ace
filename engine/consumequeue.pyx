"""Consume queues: for each queue of a topic, where in the log its messages lie."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from bisect import bisect_right

import numpy

from congreve.engine.format cimport CQ_AT_SIZE, CQ_AT_TAGS_CODE, CQ_ENTRY, CQ_FILLER_SIZE
from congreve.engine.queuefiles cimport MappingCache, QueueFiles
from congreve.io_backends.atomic cimport store_release
from congreve.io_backends.mapping cimport Mapping
from congreve.records.cursor cimport load_i32, load_i64, store_i32, store_i64

from congreve.engine.errors import StoreFormatError
from congreve.engine.format import CONSUME_QUEUE_ENTRY

cdef int64_t STRETCH_MIN = 4096     # reserved at once: small for idle queues,
cdef int64_t STRETCH_GROWTH = 8     # so many times what a file holds for others:
cdef int64_t STRETCH_MAX = 65536    # thousands that fill alike are all at the end of theirs at once


cdef void write_entry(uint8_t *at, int64_t physical_offset, int32_t size,
                      int64_t tags_code) noexcept nogil:
    store_i64(at, physical_offset)
    store_i32(at + CQ_AT_SIZE, size)
    store_i64(at + CQ_AT_TAGS_CODE, tags_code)


cdef int64_t count_valid(const uint8_t *data, int64_t entries, int64_t *end) noexcept nogil:
    # Leading entries that can be true: sizes positive, records in log order (D7). Filler counts
    # but says nothing of the log (D9). `end` becomes the end of the last record named.
    cdef int64_t i, physical
    cdef int32_t size
    for i in range(entries):
        physical = load_i64(data)
        size = load_i32(data + CQ_AT_SIZE)
        if size <= 0 or physical < 0:
            return i
        if size != CQ_FILLER_SIZE:
            if physical < end[0]:
                return i
            end[0] = physical + size
        data += CQ_ENTRY
    return entries


cdef class ConsumeQueue:
    def __init__(self, str folder, str topic, int32_t queue_id, int64_t file_size=6_000_000,
                 MappingCache cache=None):
        if file_size < CQ_ENTRY:
            raise StoreFormatError(f"a consume queue file needs {CQ_ENTRY} bytes, not {file_size}")
        self.topic, self.queue_id = topic, queue_id
        self.file_size = (file_size + CQ_ENTRY - 1) // CQ_ENTRY * CQ_ENTRY
        self.on_disk = QueueFiles(
            folder, self.file_size, MappingCache() if cache is None else cache
        )

    @property
    def min(self):
        return self.min_offset

    @property
    def max(self):
        return self.max_offset

    @property
    def max_physical_offset(self):
        return self.max_physical

    @property
    def files(self):
        return [f"{self.on_disk.folder}/{base:020d}" for base in self.on_disk.bases]

    @property
    def dirty_pages(self):
        return ((self.max_offset - self.flushed) * CQ_ENTRY + 4095) // 4096

    # --- writing

    cdef void put(self, int64_t physical_offset, int32_t size, int64_t tags_code) noexcept nogil:
        write_entry(self.next, physical_offset, size, tags_code)
        self.max_physical = physical_offset + size
        self.room -= 1
        self.next = self.next + CQ_ENTRY if self.room else NULL
        store_release(&self.max_offset, self.max_offset + 1)

    cpdef make_room(self):
        cdef int64_t position = self.max_offset * CQ_ENTRY
        cdef int64_t base = position - position % self.file_size
        cdef int64_t end
        cdef int64_t wanted = self.max_offset + self.wanted
        self.wanted = 0
        if self.room == 0:
            if self.active is None or base != self.active_base:
                self.active = self.file_for(base)
                self.active_base = base
                self.ahead = None
            position -= base
            end = position + max(STRETCH_MIN, min(STRETCH_GROWTH * position, STRETCH_MAX))
            if self.reserved > self.max_offset:
                end = self.reserved * CQ_ENTRY - base
            end = min(end, self.file_size)
            if self.reserved <= self.max_offset:
                self.active.reserve(position, end)
            self.room = (end - position) // CQ_ENTRY
            self.next = self.active.data + position
            self.reserved = max(self.reserved, self.max_offset + self.room)
        if self.reserved < wanted:
            self.reserve_upto(wanted)

    cdef Mapping file_for(self, int64_t base):
        if self.ahead is not None and self.ahead_base == base:
            return self.ahead
        return self.on_disk.writable(base)

    cdef reserve_upto(self, int64_t offset):
        cdef int64_t position, base, end
        cdef Mapping mapping
        while self.reserved < offset:
            position = self.reserved * CQ_ENTRY
            base = position - position % self.file_size
            end = min(offset * CQ_ENTRY, base + self.file_size)
            mapping = self.active if base == self.active_base else self.file_for(base)
            mapping.reserve(position - base, end - base)
            if mapping is not self.active:
                self.ahead, self.ahead_base = mapping, base
            else:
                self.room = end // CQ_ENTRY - self.max_offset
                self.next = mapping.data + self.max_offset * CQ_ENTRY - base
            self.reserved = end // CQ_ENTRY

    def start_at(self, int64_t offset):
        """Let an empty queue begin at `offset`, with Java's filler in front of it."""
        cdef int64_t base = offset * CQ_ENTRY - offset * CQ_ENTRY % self.file_size
        if self.max_offset != 0 or self.on_disk.bases:
            raise StoreFormatError(
                f"queue {self.queue_id} of {self.topic} cannot start at {offset}: "
                f"it holds entries up to {self.max_offset}"
            )
        self.max_offset = self.flushed = base // CQ_ENTRY
        self._fill_to(offset)
        self.min_offset = offset

    def _fill_to(self, int64_t offset):
        while self.max_offset < offset:
            self.make_room()
            write_entry(self.next, 0, CQ_FILLER_SIZE, 0)
            self.room -= 1
            self.next = self.next + CQ_ENTRY if self.room else NULL
            store_release(&self.max_offset, self.max_offset + 1)

    cpdef bint append(self, int64_t queue_offset, int64_t physical_offset, int32_t size,
                      int64_t tags_code) except -1:
        if physical_offset + size <= self.max_physical or queue_offset < self.max_offset:
            return False
        if queue_offset > self.max_offset:
            if not self.on_disk.bases:
                self.start_at(queue_offset)
            elif queue_offset - self.max_offset > self.file_size // CQ_ENTRY:
                raise StoreFormatError(
                    f"queue {self.queue_id} of {self.topic} ends at {self.max_offset}, the record "
                    f"at {physical_offset} claims {queue_offset}: the log is damaged"
                )
            else:
                self._fill_to(queue_offset)
        self.make_room()
        self.put(physical_offset, size, tags_code)
        return True

    # --- reading

    cdef Mapping mapping_at(self, int64_t base):
        if self.active is not None and base == self.active_base:
            return self.active
        return self.on_disk.mapped(base)

    cdef bint entry(self, int64_t offset, int64_t *physical_offset, int32_t *size,
                    int64_t *tags_code) except? -1:
        cdef int64_t position = offset * CQ_ENTRY
        cdef Mapping mapping
        cdef const uint8_t *at
        if not self.min_offset <= offset < self.max_offset:
            return False
        mapping = self.mapping_at(position - position % self.file_size)
        if mapping is None:
            return False
        at = mapping.data + position % self.file_size
        physical_offset[0] = load_i64(at)
        size[0] = load_i32(at + CQ_AT_SIZE)
        tags_code[0] = load_i64(at + CQ_AT_TAGS_CODE)
        return True

    cdef int64_t next_file_offset(self, int64_t offset):
        bases = self.on_disk.bases
        cdef Py_ssize_t at = bisect_right(bases, offset * CQ_ENTRY)
        return bases[at] // CQ_ENTRY if at < len(bases) else self.max_offset

    def __getitem__(self, int64_t offset):
        cdef int64_t physical_offset, tags_code
        cdef int32_t size
        if not self.entry(offset, &physical_offset, &size, &tags_code):
            raise IndexError(
                f"entry {offset} of queue {self.queue_id} of {self.topic} is not in "
                f"[{self.min_offset}, {self.max_offset})"
            )
        return physical_offset, size, tags_code

    def entries(self, int64_t start, int64_t stop):
        cdef int64_t each = self.file_size // CQ_ENTRY
        cdef int64_t base, first
        start, stop = max(start, self.min_offset), min(stop, self.max_offset)
        pieces = []
        while start < stop:
            first = start - start % each
            base = first * CQ_ENTRY
            mapping = self.mapping_at(base)
            if mapping is not None:
                whole = mapping.array(CONSUME_QUEUE_ENTRY)
                pieces.append(whole[start - first:min(stop - first, each)])
            start = first + each
        if len(pieces) == 1:
            return pieces[0]
        return numpy.concatenate(pieces) if pieces else numpy.empty(0, CONSUME_QUEUE_ENTRY)

    def release_before(self, int64_t offset):
        """Unmap files that hold only entries before `offset`; they are mapped again when read."""
        for base in self.on_disk.bases:
            if base + self.file_size > offset * CQ_ENTRY:
                break
            self.on_disk.forget(base)

    def offset_at_time(self, int64_t timestamp, store_time_of):
        """The offset that Java's getOffsetInQueueByTime means, by store times alone (D15)."""
        cdef int64_t low = self.min_offset, high = self.max_offset, middle
        cdef int64_t time, before
        if low >= high:
            return low
        while low < high:
            middle = (low + high) // 2
            if self._store_time(middle, store_time_of) < timestamp:
                low = middle + 1
            else:
                high = middle
        if low == self.max_offset:
            return low - 1
        time = self._store_time(low, store_time_of)
        if time == timestamp or low == self.min_offset:
            return low
        before = self._store_time(low - 1, store_time_of)
        return low if timestamp - before > time - timestamp or before < 0 else low - 1

    def _store_time(self, int64_t offset, store_time_of):
        physical_offset, size, _ = self[offset]
        return -1 if size == CQ_FILLER_SIZE else store_time_of(physical_offset, size)

    # --- recovery and cleaning

    def load(self):
        """List the files and find the end; nothing on disk changes."""
        cdef int64_t each = self.file_size // CQ_ENTRY
        cdef int64_t valid, base
        cdef Mapping mapping
        self.active, self.ahead, self.next = None, None, NULL
        self.room, self.reserved = 0, 0
        self.max_offset = self.max_physical = 0
        bases = self.on_disk.scan()
        self.min_offset = bases[0] // CQ_ENTRY if bases else 0
        for base in reversed(bases):
            mapping = self.on_disk.mapped(base)
            with nogil:
                valid = count_valid(mapping.data, each, &self.max_physical)
            self.on_disk.forget(base)
            if valid > 0 or base == bases[0]:
                self.max_offset = base // CQ_ENTRY + valid
                break
        self.flushed = self.max_offset
        self.on_disk.bases = [base for base in bases if base <= self.max_offset * CQ_ENTRY]

    def truncate_from(self, int64_t physical_offset):
        """Drop every entry of a record that ends behind `physical_offset` in the log."""
        self.truncate_to(self._first_not_below(physical_offset, True))

    def truncate_to(self, int64_t offset):
        """Drop entries from `offset` on; zero and sync what stood there, remove later files."""
        cdef int64_t position = offset * CQ_ENTRY
        cdef int64_t base = position - position % self.file_size
        cdef Mapping mapping
        if offset > self.max_offset:
            raise StoreFormatError(
                f"queue {self.queue_id} of {self.topic} ends at {self.max_offset}: "
                f"it cannot be cut at {offset}"
            )
        self.active, self.ahead, self.next = None, None, NULL
        self.room, self.reserved = 0, 0
        last = base if position > base or self._only_file(base) else base - self.file_size
        for later in [found for found in self.on_disk.scan() if found > last]:
            self.on_disk.remove(later)
        if last == base and base in self.on_disk.bases:
            mapping = self.on_disk.writable(base)
            if self.on_disk.has_data_behind(mapping, position - base):
                mapping.zero_from(position - base)
        self.max_offset = offset
        self.flushed = min(self.flushed, offset)
        self.max_physical = self._end_of_last_record()

    def _end_of_last_record(self):
        cdef int64_t offset = self.max_offset - 1
        while offset >= self.min_offset:
            physical_offset, size, _ = self[offset]
            if size != CQ_FILLER_SIZE:
                return physical_offset + size
            offset -= 1
        return 0

    def _first_not_below(self, int64_t physical_offset, bint by_end=False):
        # First entry whose record begins at or behind `physical_offset` (or ends behind it).
        cdef int64_t low = self.min_offset, high = self.max_offset, middle, found
        cdef int64_t physical = 0
        cdef int32_t size = 0
        while low < high:
            middle = (low + high) // 2
            found = self._next_record(middle, high, &physical, &size)
            if found < high and (physical + size <= physical_offset if by_end
                                 else physical < physical_offset):
                low = found + 1
            else:
                high = middle
        return self._next_record(low, self.max_offset, &physical, &size)

    cdef int64_t _next_record(self, int64_t offset, int64_t end, int64_t *physical_offset,
                              int32_t *size) except -1:
        # First entry at or behind `offset` that is no filler; `end` where there is none before it.
        cdef int64_t tags_code
        while offset < end and self.entry(offset, physical_offset, size, &tags_code):
            if size[0] != CQ_FILLER_SIZE:
                return offset
            offset += 1
        return end

    def correct_min_offset(self, int64_t min_physical):
        """Move the begin to the first record that the log still has."""
        self.min_offset = self._first_not_below(min_physical)

    def delete_expired(self, int64_t min_physical):
        """Remove files whose records have all left the log, never the last; how many."""
        cdef int64_t removed = 0
        cdef int64_t each = self.file_size // CQ_ENTRY
        self.correct_min_offset(min_physical)
        for base in self.on_disk.bases[:len(self.on_disk.bases) - 1]:
            if base // CQ_ENTRY + each > self.min_offset:
                break
            self.on_disk.remove(base)
            removed += 1
        return removed

    def flush(self, int64_t least_pages=0):
        """msync what was appended since the last flush, if that is at least so many pages."""
        cdef int64_t end = self.max_offset * CQ_ENTRY
        cdef int64_t start = self.flushed * CQ_ENTRY
        cdef int64_t base, stop
        cdef Mapping mapping
        if start == end or self.dirty_pages < least_pages:
            return False
        while start < end:
            base = start - start % self.file_size
            stop = min(base + self.file_size, end)
            mapping = self.mapping_at(base)
            if mapping is not None:
                mapping.flush(start - base, stop - base)
            start = stop
        self.on_disk.sync_folder()
        self.flushed = end // CQ_ENTRY
        return True

    def note_flushed(self, int64_t offset):
        """The whole file system was synced when entries below `offset` were there."""
        self.flushed = max(self.flushed, offset)
        self.on_disk.folder_dirty = False

    def close(self):
        """Flush and unmap; a file that got no entry is removed (Java takes it for an entry)."""
        cdef int64_t base
        unused = []
        if self.active is not None:
            unused = [base for base in self.on_disk.bases if base >= self.max_offset * CQ_ENTRY]
        self.flush()
        self.active, self.ahead, self.next = None, None, NULL
        self.room, self.reserved = 0, 0
        for base in unused:
            if not self._only_file(base):
                self.on_disk.remove(base)

    def _only_file(self, int64_t base):
        # Whether the name of this file is all that tells where the queue has got to.
        return base > 0 and self.on_disk.bases == [base]

    def destroy(self):
        """Remove the queue from disk; it is empty afterwards."""
        self.active, self.ahead, self.next = None, None, NULL
        self.room, self.reserved = 0, 0
        for base in self.on_disk.scan():
            self.on_disk.remove(base)
        self.min_offset = self.max_offset = self.flushed = self.max_physical = 0
        self.on_disk.remove_folder()
