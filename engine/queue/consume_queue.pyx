"""Consume queues: for each queue of a topic, the positions of its messages in the log."""

from libc.errno cimport ENOMEM
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t

import threading

from congreve.base.atomic cimport load_acquire, store_release
from congreve.base.cursor cimport load_i32, load_i64, store_i32, store_i64
from congreve.engine.format cimport CQ_AT_SIZE, CQ_AT_TAGS_CODE, CQ_ENTRY, CQ_FILLER_SIZE
from congreve.engine.queue.queue_entries cimport QueueEntries
from congreve.engine.queue.queue_files cimport MappingCache, WritableMappings
from congreve.io_backends.mapping cimport Mapping

from congreve.engine.errors import StoreFormatError
from congreve.io_backends.errors import BackendError

cdef int64_t STRETCH_MIN = 4096     # bytes that make_room() reserves in an empty file
cdef int64_t STRETCH_GROWTH = 8     # the next stretch, as a multiple of what the file holds
cdef int64_t STRETCH_MAX = 65536    # many queues may need their next stretch at the same time


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


# Unmaps the queues that got no entry for the longest, after a queue was mapped for writing.
cdef admit(WritableMappings writable, ConsumeQueue queue):
    queue.max_seen = -1
    if not queue.counted:
        queue.counted = True
        writable.queues.append(queue)
    evict(writable, writable.limit)


# Leaves at most `most` queues mapped; whether one was unmapped. It skips a queue once that got
# entries since its last turn. Readers lose nothing: the mapping lives as long as references to it.
cdef bint evict(WritableMappings writable, Py_ssize_t most) except -1:
    cdef ConsumeQueue queue
    cdef bint evicted = False
    while len(writable.queues) > most:
        queue = writable.queues.popleft()
        if queue.active is not None and queue.max_seen != queue.max_offset:
            queue.max_seen = queue.max_offset
            writable.queues.append(queue)
        else:
            queue.unmap_newest()
            evicted = True
    return evicted


def newest_of(queues):
    """The queue whose last record has the greatest physical offset; None without queues."""
    cdef ConsumeQueue queue, newest = None
    cdef int64_t end, newest_end = 0
    for queue in queues:
        end = load_acquire(&queue.max_physical)
        if newest is None or end > newest_end:
            newest, newest_end = queue, end
    return newest


def forget_entries(queues):
    """Make these queues empty; their files and mappings stay."""
    cdef ConsumeQueue queue
    for queue in queues:
        queue.next, queue.free_entries, queue.reserved = NULL, 0, 0
        queue.min_offset = queue.max_offset = queue.flushed = queue.max_physical = 0


cdef class ConsumeQueue(QueueEntries):
    """One queue of one topic: 20-byte entries with the positions of messages in the log.

    RocketMQ: ConsumeQueue. One thread appends; others may read, flush, or make the first file. Its
    methods raise BackendError if the disk fails, StoreFormatError for wrong files or offsets.

    The first entry creates `folder`. `file_size` is in bytes, rounded up to whole entries.
    """

    def __init__(self, str folder, str topic, int32_t queue_id, int64_t file_size=6_000_000,
                 MappingCache cache=None, WritableMappings writable=None):
        QueueEntries.__init__(self, folder, topic, queue_id, file_size, cache)
        self.writable = WritableMappings() if writable is None else writable
        self.making = threading.Lock()

    @property
    def has_file(self):
        """Whether the queue has a file; otherwise the next entry makes its folder and one."""
        return self.active is not None or self.ahead is not None or bool(self.on_disk.bases)

    @property
    def max_physical_offset(self):
        """The end of the last entry's record in the log, without filler; 0 without an entry."""
        return load_acquire(&self.max_physical)

    @property
    def dirty_pages(self):
        """4 KiB pages that a flush would write."""
        return ((load_acquire(&self.max_offset) - self.flushed) * CQ_ENTRY + 4095) // 4096

    # --- writing

    cdef void put(self, int64_t physical_offset, int32_t size, int64_t tags_code) noexcept nogil:
        write_entry(self.next, physical_offset, size, tags_code)
        store_release(&self.max_physical, physical_offset + size)
        store_release(&self.put_bytes, self.put_bytes + size)
        self.free_entries -= 1
        self.next = self.next + CQ_ENTRY if self.free_entries else NULL
        store_release(&self.max_offset, self.max_offset + 1)

    cpdef make_room(self):
        """Open the next file, or reserve the next part of this one, if no entry fits."""
        cdef int64_t position = self.max_offset * CQ_ENTRY
        cdef int64_t base = position - position % self.file_size
        cdef int64_t end
        cdef int64_t wanted = self.max_offset + self.wanted
        self.wanted = 0
        if self.free_entries == 0:
            if self.active is None or base != self.active_base:
                self.active = self.file_for(base)
                self.active_base = base
                self.ahead = None
                admit(self.writable, self)
            position -= base
            end = position + max(STRETCH_MIN, min(STRETCH_GROWTH * position, STRETCH_MAX))
            if self.reserved > self.max_offset:
                end = self.reserved * CQ_ENTRY - base
            end = min(end, self.file_size)
            if self.reserved <= self.max_offset:
                self.on_disk.files.reserve(self.active, position, end)
            self.free_entries = (end - position) // CQ_ENTRY
            self.next = self.active.data + position
            self.reserved = max(self.reserved, self.max_offset + self.free_entries)
        if self.reserved < wanted:
            self.reserve_upto(wanted)

    cdef Mapping file_for(self, int64_t base):
        with self.making:
            if self.ahead is not None and self.ahead_base == base:
                return self.ahead
            try:
                return self.on_disk.writable(base)
            except BackendError as error:
                # The limit leaves mappings for other code of the process.
                if error.errno != ENOMEM or not evict(self.writable, self.writable.mapped // 2):
                    raise
            return self.on_disk.writable(base)

    def make_first_file(self):
        """Make the file of the next entry, unless the queue has one; for any thread."""
        cdef int64_t position, base, end
        cdef Mapping mapping
        with self.making:
            if self.has_file:
                return
            position = self.max_offset * CQ_ENTRY
            base = position - position % self.file_size
            mapping = self.on_disk.writable(base)
            end = min(position - base + STRETCH_MIN, self.file_size)
            self.on_disk.files.reserve(mapping, position - base, end)
            self.reserved = (base + end) // CQ_ENTRY
            self.ahead, self.ahead_base = mapping, base

    cdef void unmap_newest(self):
        self.active, self.ahead, self.next = None, None, NULL
        self.free_entries = 0
        self.counted = False

    cdef reserve_upto(self, int64_t offset):
        cdef int64_t position, base, end
        cdef Mapping mapping
        while self.reserved < offset:
            position = self.reserved * CQ_ENTRY
            base = position - position % self.file_size
            end = min(offset * CQ_ENTRY, base + self.file_size)
            mapping = self.active if base == self.active_base else self.file_for(base)
            self.on_disk.files.reserve(mapping, position - base, end - base)
            if mapping is not self.active:
                self.ahead, self.ahead_base = mapping, base
            else:
                self.free_entries = end // CQ_ENTRY - self.max_offset
                self.next = mapping.data + self.max_offset * CQ_ENTRY - base
            self.reserved = end // CQ_ENTRY

    def start_at(self, int64_t offset):
        """Let an empty queue begin at `offset`, with Java's filler entries in front of it."""
        cdef int64_t base, last = (INT64_MAX - self.file_size) // CQ_ENTRY
        if self.max_offset != 0 or self.on_disk.bases or not 0 <= offset <= last:
            raise StoreFormatError(
                f"queue {self.queue_id} of {self.topic} cannot start at {offset}: it holds entries "
                f"up to {self.max_offset}, and no file can have one after {last}"
            )
        base = offset * CQ_ENTRY - offset * CQ_ENTRY % self.file_size
        self.max_offset = self.flushed = base // CQ_ENTRY
        self._fill_to(offset)
        self.min_offset = offset

    def _fill_to(self, int64_t offset):
        while self.max_offset < offset:
            self.make_room()
            write_entry(self.next, 0, CQ_FILLER_SIZE, 0)
            self.free_entries -= 1
            self.next = self.next + CQ_ENTRY if self.free_entries else NULL
            store_release(&self.max_offset, self.max_offset + 1)

    cpdef bint append(self, int64_t queue_offset, int64_t physical_offset, int32_t size,
                      int64_t tags_code) except -1:
        """Add the entry of a record that was found in the log (putMessagePositionInfo, defect D8).

        Returns False if the queue already has it. The entry takes the place of filler at the end.
        It fills a gap with filler entries, and raises StoreFormatError for a gap larger than a
        file.
        """
        if physical_offset + size <= self.max_physical:
            return False
        if queue_offset < self.max_offset:
            return self.replace_filler(queue_offset, physical_offset, size, tags_code)
        if queue_offset > self.max_offset:
            if not self.on_disk.bases:
                self.start_at(queue_offset)
            elif queue_offset - self.max_offset > self.file_size // CQ_ENTRY:
                raise StoreFormatError(
                    f"queue {self.queue_id} of {self.topic} ends at {self.max_offset}, the record "
                    f"at {physical_offset} has offset {queue_offset}: the log is damaged"
                )
            else:
                self._fill_to(queue_offset)
        self.make_room()
        self.put(physical_offset, size, tags_code)
        return True

    cdef bint replace_filler(self, int64_t queue_offset, int64_t physical_offset, int32_t size,
                             int64_t tags_code) except -1:
        # Behind the last record, before which this one does not begin, all entries are filler.
        cdef int64_t found = 0, found_tags_code = 0, at = queue_offset * CQ_ENTRY
        cdef int64_t base = at - at % self.file_size
        cdef int32_t found_size = 0
        cdef Mapping mapping
        if (
            not self.entry(queue_offset, &found, &found_size, &found_tags_code)
            or found_size != CQ_FILLER_SIZE
        ):
            return False
        mapping = self.active if base == self.active_base else None
        if mapping is None:
            mapping = self.on_disk.writable(base)
        if queue_offset < self.summed:
            self.sums = None
        write_entry(mapping.data + (at - base), physical_offset, size, tags_code)
        store_release(&self.max_physical, physical_offset + size)
        store_release(&self.put_bytes, self.put_bytes + size)
        self.flushed = min(self.flushed, queue_offset)
        return True

    # --- recovery and cleaning

    def load(self, int64_t end=-1):
        """List the files and find the last valid entry; changes nothing on disk (defect D7).

        It skips files that are not the queue's, and those of another size, with a warning (D27).
        Raises BackendError if all files have another size. `min` is the start of the first file
        until correct_min_offset() is called. With an `end` it reads no entry: `max` is `end`, or
        the number of entries in the files.
        """
        self.active, self.ahead, self.next, self.sums = None, None, NULL, None
        self.free_entries, self.reserved = 0, 0
        self.max_offset = self.max_physical = 0
        bases = self.on_disk.scan()
        self.min_offset = bases[0] // CQ_ENTRY if bases else 0
        if end >= 0:
            self._end_at(bases, end)
        elif not bases and self.on_disk.misfits:
            # This raises the error that names the file.
            self.on_disk.files.map(self.on_disk.misfits[0], self.file_size, writable=False)
        else:
            self._find_end(bases)
        self.flushed = self.max_offset
        self.on_disk.bases = [base for base in bases if base <= self.max_offset * CQ_ENTRY]

    def _end_at(self, list bases, int64_t end):
        # At `end`, or where the files that follow each other end before it.
        cdef int64_t reach = self.min_offset * CQ_ENTRY
        cdef int64_t base
        for base in bases:
            if base != reach:
                break
            reach += self.file_size
        self.max_offset = max(min(end, reach // CQ_ENTRY), self.min_offset)
        self.max_physical = sum(self.last_record() or (0,))
        after = self.stored(self.max_offset, self.max_offset + 1)
        self.has_more = (after is not None and any(after)) or (
            bool(bases) and bases[len(bases) - 1] > self.max_offset * CQ_ENTRY
        )
        for base in bases:
            self.on_disk.forget(base)

    def _find_end(self, list bases):
        cdef int64_t each = self.file_size // CQ_ENTRY
        cdef int64_t valid, base
        cdef Mapping mapping
        for base in reversed(bases):
            mapping = self.on_disk.mapped(base)
            with nogil:
                valid = count_valid(mapping.data, each, &self.max_physical)
            self.on_disk.forget(base)
            if valid > 0 or base == bases[0]:
                self.max_offset = base // CQ_ENTRY + valid
                break

    def truncate_from(self, int64_t physical_offset):
        """Remove the entries of records that end after `physical_offset`; for recovery."""
        self.truncate_to(self._first_not_below(physical_offset, True))

    def truncate_to(self, int64_t offset):
        """Remove the entries from `offset` on: zero and sync their bytes, remove later files."""
        cdef int64_t position = offset * CQ_ENTRY
        cdef int64_t base = position - position % self.file_size
        cdef Mapping mapping
        if offset > self.max_offset:
            raise StoreFormatError(
                f"queue {self.queue_id} of {self.topic} ends at {self.max_offset}: "
                f"it cannot be truncated to {offset}"
            )
        self.active, self.ahead, self.next = None, None, NULL
        self.free_entries, self.reserved = 0, 0
        if offset < self.summed:
            self.sums = None
        last = base if position > base or self._only_file(base) else base - self.file_size
        for later in [found for found in self.on_disk.scan() if found > last]:
            self.on_disk.remove(later)
        if last == base and base in self.on_disk.bases:
            mapping = self.on_disk.writable(base)
            if self.on_disk.has_data_behind(mapping, position - base):
                self.on_disk.files.zero_map(mapping, position - base)
        self.max_offset = offset
        self.flushed = min(self.flushed, offset)
        self.max_physical = sum(self.last_record() or (0,))

    def begin_at(self, int64_t offset):
        """Set `min` to `offset`: all entries before it have expired."""
        self.min_offset = min(max(self.min_offset, offset), self.max_offset)

    def extend_down_to(self, int64_t offset):
        """Count the filler that start_at() has written from `offset` on as messages."""
        cdef int64_t first = self.min_offset - self.min_offset % (self.file_size // CQ_ENTRY)
        if self.on_disk.bases:
            self.min_offset = min(self.min_offset, max(offset, first))

    def fill_to(self, int64_t offset):
        """Append filler up to `offset`, for messages whose records the log lost."""
        self._fill_to(offset)

    def rewrite(self, int64_t start, entries):
        """Replace the entries from `start` on, all in one file; they are durable afterwards.

        `entries` is an array of format.CONSUME_QUEUE_ENTRY.
        """
        cdef int64_t at = start * CQ_ENTRY % self.file_size
        cdef int64_t base = start * CQ_ENTRY - at
        cdef Mapping mapping = self.active if base == self.active_base else None
        data = entries.tobytes()
        if mapping is None:
            mapping = self.on_disk.writable(base)
        memoryview(mapping)[at:at + len(data)] = data
        self.on_disk.files.sync_map(mapping, at, at + len(data))

    def correct_min_offset(self, int64_t min_physical):
        """Set `min` to the first entry whose record is at or after `min_physical`."""
        self.min_offset = self._first_not_below(min_physical)

    def delete_expired(self, int64_t min_physical):
        """Correct `min` and remove files before it, never the last; returns their number."""
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
        """msync the entries appended since the last flush; False if there are too few."""
        cdef int64_t end = load_acquire(&self.max_offset) * CQ_ENTRY
        cdef int64_t start = self.flushed * CQ_ENTRY
        cdef int64_t base, stop
        if start == end or self.dirty_pages < least_pages:
            return False
        while start < end:
            base = start - start % self.file_size
            stop = min(base + self.file_size, end)
            if self.active is not None and base == self.active_base:
                self.on_disk.files.sync_map(self.active, start - base, stop - base)
            else:
                self.on_disk.sync(base)
            start = stop
        self.on_disk.sync_folder()
        self.flushed = end // CQ_ENTRY
        return True

    def note_flushed(self, int64_t offset):
        """Record that a sync of the whole file system covered the entries below `offset`."""
        self.flushed = max(self.flushed, offset)

    def close(self):
        """Flush and unmap; removes a file without entries."""
        cdef int64_t base
        unused = []
        if self.active is not None or self.ahead is not None:
            unused = [base for base in self.on_disk.bases if base >= self.max_offset * CQ_ENTRY]
        self.flush()
        self.active, self.ahead, self.next = None, None, NULL
        self.free_entries, self.reserved = 0, 0
        for base in unused:
            if not self._only_file(base):
                self.on_disk.remove(base)

    def _only_file(self, int64_t base):
        # Whether only this file's name shows the end of the queue.
        return base > 0 and self.on_disk.bases == [base]

    def unmap(self):
        """Release the mappings for writing; for a queue after forget_entries()."""
        self.unmap_newest()
        self.sums = None

    def destroy(self):
        """Remove the queue's files and folder; the queue is empty afterwards."""
        self.active, self.ahead, self.next, self.sums = None, None, NULL, None
        self.free_entries, self.reserved = 0, 0
        for base in self.on_disk.scan():
            self.on_disk.remove(base)
        self.min_offset = self.max_offset = self.flushed = self.max_physical = 0
        self.on_disk.remove_folder()
