"""A merge of many sorted runs and the entries in memory, in the order of their times."""

cimport cython
from libc.stdint cimport INT64_MAX, int64_t
from libc.stdlib cimport free, realloc

import numpy

cdef inline bint before(const Entry *a, const Entry *b) noexcept nogil:
    return a.wake < b.wake or (a.wake == b.wake and a.offset < b.offset)


@cython.final
cdef class TimerHeap:
    """Entries (wake in ms since 1970, physical offset), the least first.

    The caller feeds a run block by block into a slot. `starved` is the slot whose block is used up:
    feed() or end() must follow before the next take().
    """

    def __cinit__(self):
        self.arrays = []
        self.starved = -1
        self.reserve(1024)

    def __dealloc__(self):
        free(self.entries)
        free(self.blocks)

    @property
    def next_wake(self):
        """Time in ms of the first entry; 2^63 - 1 without one."""
        return self.entries[0].wake if self.count else INT64_MAX

    # --- entries

    cdef int reserve(self, int64_t wanted) except -1:
        cdef int64_t capacity = self.capacity
        if wanted <= capacity:
            return 0
        capacity = max(wanted, capacity * 2)
        entries = <Entry *> realloc(self.entries, capacity * sizeof(Entry))
        if entries == NULL:
            raise MemoryError
        self.entries, self.capacity = entries, capacity
        return 0

    cdef void push(self, int64_t wake, int64_t offset, int64_t source) noexcept nogil:
        cdef int64_t at = self.count
        cdef int64_t parent
        cdef Entry entry
        entry.wake, entry.offset, entry.source = wake, offset, source
        self.count += 1
        self.memory_count += source == MEMORY
        while at > 0:
            parent = (at - 1) // 2
            if not before(&entry, &self.entries[parent]):
                break
            self.entries[at] = self.entries[parent]
            at = parent
        self.entries[at] = entry

    cdef void pop(self) noexcept nogil:
        self.memory_count -= self.entries[0].source == MEMORY
        self.count -= 1
        self.entries[0] = self.entries[self.count]
        self.sift_down(0)

    cdef void sift_down(self, int64_t at) noexcept nogil:
        cdef Entry entry = self.entries[at]
        cdef int64_t child
        while True:
            child = 2 * at + 1
            if child >= self.count:
                break
            if child + 1 < self.count and before(&self.entries[child + 1], &self.entries[child]):
                child += 1
            if not before(&self.entries[child], &entry):
                break
            self.entries[at] = self.entries[child]
            at = child
        if self.count:
            self.entries[at] = entry

    def add(self, const int64_t[::1] wakes, const int64_t[::1] offsets):
        """Add entries: two int64 arrays of equal length, wake in ms and physical offset."""
        cdef int64_t i
        self.reserve(self.count + wakes.shape[0])
        with nogil:
            for i in range(wakes.shape[0]):
                self.push(wakes[i], offsets[i], MEMORY)

    def give_back(self, const int64_t[:, ::1] rows):
        """Take back rows of take() that were not handled."""
        cdef int64_t i
        self.reserve(self.count + rows.shape[0])
        for i in range(rows.shape[0]):
            self.push(rows[i, 0], rows[i, 1], rows[i, 2])

    def memory(self):
        """The entries in memory, shape (n, 2): wake and offset, in no order."""
        found = numpy.empty((self.memory_count, 2), numpy.int64)
        cdef int64_t[:, ::1] pairs = found
        cdef int64_t i, n = 0
        for i in range(self.count):
            if self.entries[i].source == MEMORY:
                pairs[n, 0] = self.entries[i].wake
                pairs[n, 1] = self.entries[i].offset
                n += 1
        return found

    def forget(self, int64_t source, int64_t below=INT64_MAX):
        """Drop a slot's entries, or those in memory (-1) of offsets below `below`."""
        cdef int64_t i, kept = 0
        cdef Entry *entry
        for i in range(self.count):
            entry = &self.entries[i]
            if entry.source == source and entry.offset < below:
                self.memory_count -= source == MEMORY
                continue
            self.entries[kept] = entry[0]
            kept += 1
        self.count = kept
        for i in range(kept // 2 - 1, -1, -1):
            self.sift_down(i)
        if source >= 0:
            self.end(source)

    # --- runs

    def new_slot(self):
        """Reserve a slot for another run; its number."""
        blocks = <Block *> realloc(self.blocks, (self.slots + 1) * sizeof(Block))
        if blocks == NULL:
            raise MemoryError
        self.blocks = blocks
        self.blocks[self.slots].at = self.blocks[self.slots].count = 0
        self.arrays.append(None)
        self.slots += 1
        return self.slots - 1

    def feed(self, int64_t slot, pairs):
        """Add the run's next block: int64 of shape (n, 2), n > 0, sorted, in C order."""
        cdef const int64_t[:, ::1] view = pairs
        self.reserve(self.count + 1)
        self.arrays[slot] = pairs
        self.blocks[slot].pairs = &view[0, 0]
        self.blocks[slot].at = 0
        self.blocks[slot].count = view.shape[0]
        if self.starved == slot:
            self.starved = -1
        self.advance(slot)

    cdef void advance(self, int64_t slot) noexcept nogil:
        cdef Block *block = &self.blocks[slot]
        if block.at < block.count:
            self.push(block.pairs[2 * block.at], block.pairs[2 * block.at + 1], slot)
            block.at += 1
        elif block.count:
            block.count = 0
            self.starved = slot

    def end(self, int64_t slot):
        """End the slot's run, which has no further blocks; entries that were given back stay."""
        self.blocks[slot].at = self.blocks[slot].count = 0
        self.arrays[slot] = None
        if self.starved == slot:
            self.starved = -1

    # --- what is due

    def take(self, int64_t now, int64_t limit):
        """Entries with wake <= now in order, at most `limit`: rows (wake, offset, source).

        It returns fewer where a slot is starved. The result is int64 of shape (n, 3).
        """
        cdef int64_t found
        rows = numpy.empty((limit, 3), numpy.int64)
        cdef int64_t[:, ::1] view = rows
        if limit == 0 or self.starved >= 0:
            return rows[:0]
        with nogil:
            found = self.pop_due(now, &view[0, 0], limit)
        return rows[:found]

    cdef int64_t pop_due(self, int64_t now, int64_t *rows, int64_t limit) noexcept nogil:
        cdef int64_t found = 0, slot
        while (
            found < limit and self.count and self.starved < 0 and self.entries[0].wake <= now
        ):
            slot = self.entries[0].source
            rows[0], rows[1], rows[2] = self.entries[0].wake, self.entries[0].offset, slot
            rows += 3
            found += 1
            self.pop()
            if slot >= 0:
                # The heap has space: pop() has just removed an entry.
                self.advance(slot)
        return found
