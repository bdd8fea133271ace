"""The settled half messages, one bit each."""

cimport cython
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove, memset

cdef enum:
    FIRST_CAPACITY = 4096   # bytes: 32,768 offsets
    LOOKS_AT_ONCE = 4096    # offsets that open_offsets() looks at under the lock


@cython.final
cdef class HalfWindow:
    """Which half messages are settled, by their offset in the half queue: one bit each.

    `base` is the first offset that is still open: all below it are settled. The window begins there
    and grows as offsets above it are settled. `lock` is the log's append lock, under which lanes
    settle half messages, too.
    """

    def __cinit__(self, AppendLock lock not None, int64_t base=0):
        self.lock = lock
        self.claimed = -1
        self.start_at(base)

    def __dealloc__(self):
        free(self.bits)

    cdef bint is_settled(self, int64_t offset) noexcept nogil:
        cdef int64_t place = offset - self.origin
        if offset < self.base:
            return True
        return place >> 3 < self.capacity and self.bits[place >> 3] & 1 << (place & 7) != 0

    cdef bint is_free(self, int64_t offset) noexcept nogil:
        return offset != self.claimed and not self.is_settled(offset)

    cdef bint settle(self, int64_t offset) noexcept nogil:
        if offset < self.base:
            return True
        if not self.has_room(offset):
            return False
        self.bits[offset - self.origin >> 3] |= 1 << (offset - self.origin & 7)
        while self.is_settled(self.base):
            self.base += 1
        return True

    # Makes room for the bit of `offset`: drops old bits, or grows the window.
    cdef bint has_room(self, int64_t offset) noexcept nogil:
        cdef int64_t capacity = self.capacity
        cdef uint8_t *bits
        if offset - self.origin >> 3 < capacity:
            return True
        if (self.base - self.origin) >> 3 > capacity >> 1:
            self.slide()
            if offset - self.origin >> 3 < capacity:
                return True
        capacity = max(capacity, <int64_t> FIRST_CAPACITY)
        while offset - self.origin >> 3 >= capacity:
            capacity *= 2
        bits = <uint8_t *> realloc(self.bits, capacity)
        if bits == NULL:
            return False
        memset(bits + self.capacity, 0, capacity - self.capacity)
        self.bits = bits
        self.capacity = capacity
        return True

    cdef void slide(self) noexcept nogil:
        cdef int64_t gone = self.base - self.origin >> 3
        if gone >= self.capacity:
            gone = self.capacity
        memmove(self.bits, self.bits + gone, self.capacity - gone)
        memset(self.bits + self.capacity - gone, 0, gone)
        self.origin = self.base & ~<int64_t> 7

    # --- for Python callers

    def contains(self, int64_t offset):
        """Whether this offset is settled."""
        with self.lock:
            return self.is_settled(offset)

    def claim(self, int64_t offset):
        """Reserve this offset until release(): no lane settles it; False if it is settled.

        The event loop alone claims offsets, one at a time.
        """
        with self.lock:
            if self.is_settled(offset):
                return False
            self.claimed = offset
            return True

    def release(self):
        """End the claim; the offset is open again unless it was settled meanwhile."""
        with self.lock:
            self.claimed = -1

    def add(self, int64_t offset):
        """Settle one offset; `base` moves past all that follow. Raises MemoryError."""
        with self.lock:
            if not self.settle(offset):
                raise MemoryError(f"no memory for the state of half message {offset}")

    def start_at(self, int64_t base):
        """Forget everything; all offsets below `base` are settled."""
        self.base = base
        self.origin = base & ~<int64_t> 7
        if self.bits != NULL:
            memset(self.bits, 0, self.capacity)

    def open_offsets(self, int64_t stop):
        """The offsets in [base, stop) that are not settled, in order."""
        cdef int64_t offset = self.base
        cdef int64_t end
        found = []
        while offset < stop:
            end = min(stop, offset + LOOKS_AT_ONCE)
            with self.lock:
                while offset < end:
                    if not self.is_settled(offset):
                        found.append(offset)
                    offset += 1
        return found
