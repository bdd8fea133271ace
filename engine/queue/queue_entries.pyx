"""The entries of a consume queue, as readers see them."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t

from bisect import bisect_right

import numpy

from congreve.base.atomic cimport load_acquire
from congreve.base.cursor cimport load_i32, load_i64
from congreve.engine.format cimport CQ_AT_SIZE, CQ_AT_TAGS_CODE, CQ_ENTRY, CQ_FILLER_SIZE
from congreve.engine.queue.queue_files cimport MappingCache, QueueFiles
from congreve.io_backends.mapping cimport Mapping

from congreve.engine.errors import StoreFormatError
from congreve.engine.format import CONSUME_QUEUE_ENTRY


def moved_topics(topics, dict ends):
    """Return the topics whose queues begin or end at other offsets than those in `ends`, and update
    `ends`.

    `topics` has pairs of a name and its queues by id; `ends` the first and the next offset of each
    queue of a topic as packed int64, in the order of its queues.
    """
    cdef QueueEntries queue
    cdef dict queues
    cdef bytes now
    cdef int64_t *at
    moved = []
    for topic, queues in topics:
        now = PyBytes_FromStringAndSize(NULL, 2 * sizeof(int64_t) * len(queues))
        at = <int64_t *> PyBytes_AS_STRING(now)
        for queue in queues.values():
            at[0], at[1] = queue.min_offset, load_acquire(&queue.max_offset)
            at += 2
        if ends.get(topic) != now:
            ends[topic] = now
            moved.append(topic)
    return moved


cdef class QueueEntries:
    """The reads of a ConsumeQueue: by offset, by the log's offset, by time; for any thread.

    (RocketMQ: ConsumeQueue.)
    """

    def __init__(self, str folder, str topic, int32_t queue_id, int64_t file_size,
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
        """First offset that can be read (getMinOffsetInQueue)."""
        return self.min_offset

    @property
    def max(self):
        """Offset of the next entry (getMaxOffsetInQueue)."""
        return load_acquire(&self.max_offset)

    @property
    def files(self):
        """Paths of the files, oldest first."""
        return [f"{self.on_disk.folder}/{base:020d}" for base in self.on_disk.bases]

    cdef Mapping mapping_at(self, int64_t base):
        if self.active is not None and base == self.active_base:
            return self.active
        return self.on_disk.mapped(base)

    cdef bint entry(self, int64_t offset, int64_t *physical_offset, int32_t *size,
                    int64_t *tags_code) except? -1:
        cdef int64_t position = offset * CQ_ENTRY
        cdef Mapping mapping
        cdef const uint8_t *at
        if not self.min_offset <= offset < load_acquire(&self.max_offset):
            return False
        mapping = self.mapping_at(position - position % self.file_size)
        if mapping is None:
            return False
        at = mapping.data + position % self.file_size
        physical_offset[0] = load_i64(at)
        size[0] = load_i32(at + CQ_AT_SIZE)
        tags_code[0] = load_i64(at + CQ_AT_TAGS_CODE)
        return True

    cdef bint names_lately(self, int64_t offset, int64_t physical_offset) noexcept nogil:
        cdef int64_t position = offset * CQ_ENTRY - self.active_base
        return (
            self.active is not None and offset < load_acquire(&self.max_offset)
            and 0 <= position < self.file_size
            and load_i64(self.active.data + position) == physical_offset
        )

    cdef int64_t next_file_offset(self, int64_t offset):
        bases = self.on_disk.bases
        cdef Py_ssize_t at = bisect_right(bases, offset * CQ_ENTRY)
        return bases[at] // CQ_ENTRY if at < len(bases) else load_acquire(&self.max_offset)

    def __getitem__(self, int64_t offset):
        """(physical offset, size, tags code) of one entry; IndexError outside [min, max)."""
        cdef int64_t physical_offset, tags_code
        cdef int32_t size
        if not self.entry(offset, &physical_offset, &size, &tags_code):
            raise IndexError(
                f"entry {offset} of queue {self.queue_id} of {self.topic} is not in "
                f"[{self.min_offset}, {load_acquire(&self.max_offset)})"
            )
        return physical_offset, size, tags_code

    def place(self, int64_t offset):
        """Physical offset of a message, also of an expired one; -1 if no entry has it any more."""
        cdef int64_t position = offset * CQ_ENTRY
        cdef Mapping mapping
        cdef const uint8_t *at
        if not 0 <= offset < load_acquire(&self.max_offset):
            return -1
        mapping = self.mapping_at(position - position % self.file_size)
        if mapping is None:
            return -1
        at = mapping.data + position % self.file_size
        return -1 if load_i32(at + CQ_AT_SIZE) == CQ_FILLER_SIZE else load_i64(at)

    def entries(self, int64_t start, int64_t stop):
        """Entries of [start, stop) as format.CONSUME_QUEUE_ENTRY, clipped to [min, max).

        A view of the mapped file if one file holds them all, else a copy.
        """
        cdef int64_t each = self.file_size // CQ_ENTRY
        cdef int64_t base, first
        start, stop = max(start, self.min_offset), min(stop, load_acquire(&self.max_offset))
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
        """Unmap files with entries only before `offset`; a read maps them again."""
        for base in self.on_disk.bases:
            if base + self.file_size > offset * CQ_ENTRY:
                break
            self.on_disk.forget(base)

    def offset_at_time(self, int64_t timestamp, store_time_of, int64_t stop=INT64_MAX):
        """The offset below `stop` stored at `timestamp` ms (getOffsetInQueueByTime, defect D15).

        `store_time_of(physical_offset, size)` returns a record's store time, or -1 if it cannot be
        read. The result is an entry with this time, else the nearest one, of two the earlier; the
        first or last entry for a time before or after all of them; `min` for an empty queue.
        """
        cdef int64_t low = self.min_offset, middle
        cdef int64_t end = min(load_acquire(&self.max_offset), stop), high = end
        cdef int64_t time, before
        if low >= high:
            return low
        while low < high:
            middle = (low + high) // 2
            if self._store_time(middle, store_time_of) < timestamp:
                low = middle + 1
            else:
                high = middle
        if low == end:
            return low - 1
        time = self._store_time(low, store_time_of)
        if time == timestamp or low == self.min_offset:
            return low
        before = self._store_time(low - 1, store_time_of)
        return low if timestamp - before > time - timestamp or before < 0 else low - 1

    def _store_time(self, int64_t offset, store_time_of):
        physical_offset, size, _ = self[offset]
        return -1 if size == CQ_FILLER_SIZE else store_time_of(physical_offset, size)

    def stored(self, int64_t start, int64_t stop):
        """The bytes of entries [start, stop) of one file; None if the file does not exist."""
        cdef int64_t base = start * CQ_ENTRY - start * CQ_ENTRY % self.file_size
        cdef Mapping mapping = self.mapping_at(base)
        if mapping is None:
            return None
        return memoryview(mapping)[start * CQ_ENTRY - base:stop * CQ_ENTRY - base]

    def first_after(self, int64_t physical_offset):
        """The first entry of a record that ends after `physical_offset`; `max` without one."""
        return self._first_not_below(physical_offset, True)

    def last_record(self):
        """(physical offset, size) of the last entry but filler; None without one."""
        cdef int64_t offset = load_acquire(&self.max_offset) - 1
        while offset >= self.min_offset:
            physical_offset, size, _ = self[offset]
            if size != CQ_FILLER_SIZE:
                return physical_offset, size
            offset -= 1
        return None

    def _first_not_below(self, int64_t physical_offset, bint by_end=False):
        # First entry whose record begins at or after `physical_offset` (or ends after it).
        cdef int64_t low = self.min_offset, high = load_acquire(&self.max_offset), middle, found
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
        return self._next_record(low, load_acquire(&self.max_offset), &physical, &size)

    cdef int64_t end_before(self, int64_t physical_offset, int64_t stop) except -1:
        cdef int64_t low = self.min_offset, high = max(stop, low), step = 1, at, found
        cdef int64_t physical = 0
        cdef int32_t size = 0
        while low < high:
            at = max(high - step, low) if step else (low + high) // 2
            found = self._next_record(at, high, &physical, &size)
            if found < high and physical + size <= physical_offset:
                low, step = found + 1, 0
            else:
                high = at
                step *= 2
        return low

    cdef int64_t _next_record(self, int64_t offset, int64_t end, int64_t *physical_offset,
                              int32_t *size) except -1:
        # First entry at or after `offset` that is not a filler; `end` if there is none before it.
        cdef int64_t tags_code
        while offset < end and self.entry(offset, physical_offset, size, &tags_code):
            if size[0] != CQ_FILLER_SIZE:
                return offset
            offset += 1
        return end
