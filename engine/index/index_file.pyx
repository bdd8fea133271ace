"""One file of the key index: hash slots, chains of entries, newest first."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.base.cursor cimport load_i32, load_i64, prefetch, store_i32, store_i64
from congreve.engine.format cimport (
    INDEX_ENTRY,
    INDEX_ENTRY_AT_PHYSICAL_OFFSET,
    INDEX_ENTRY_AT_PREVIOUS,
    INDEX_ENTRY_AT_SECONDS,
    INDEX_HEADER,
    INDEX_HEADER_AT_BEGIN_PHYSICAL,
    INDEX_HEADER_AT_BEGIN_TIMESTAMP,
    INDEX_HEADER_AT_COUNT,
    INDEX_HEADER_AT_END_PHYSICAL,
    INDEX_HEADER_AT_END_TIMESTAMP,
    INDEX_HEADER_AT_USED_SLOTS,
    INDEX_SLOT,
)

from congreve.engine.errors import StoreFormatError
from congreve.io_backends.errors import BackendError
from congreve.io_backends.files.file_system import DISK
from congreve.records.record import crc32

cdef int32_t STRETCH = 1 << 16          # entries whose disk space is reserved at once
cdef int64_t SECONDS_MAX = 0x7FFFFFFF
# A chain runs from new to old, but clocks step back: this many entries in a row must be too old
# before the search of the chain ends (D4).
cdef int32_t OLD_RUN_MAX = 1024
# Entries of other keys and times that find() walks over before it lets its caller stop.
cdef int32_t PASSED_MAX = 16_384
NOT_FOUND_YET = -1  # find() yields it in place of an offset, so that its caller can pause
cdef int64_t SECOND_MS = 1000
cdef int64_t SUMMED_AT_ONCE = 1 << 20   # bytes; other threads may run in between


@cython.final
cdef class IndexFile:
    """One file of the key index (RocketMQ: IndexFile, IndexHeader); one thread adds.

    It holds `capacity` - 1 entries. A new file begins where the previous one ended. Raises
    BackendError, SegmentSizeError or StoreFormatError.
    """

    def __cinit__(self, str path, int32_t slots, int32_t capacity, *, bint create=False,
                  int64_t end_physical=0, int64_t end_timestamp=0, bint writable=True, files=DISK):
        cdef int64_t head = INDEX_HEADER + <int64_t> slots * INDEX_SLOT
        self.files = files
        self.mapping = files.map(path, head + <int64_t> capacity * INDEX_ENTRY, create=create,
                                 writable=writable)
        self.path, self.slots, self.capacity = path, slots, capacity
        self.entries = self.mapping.data + head
        if create:
            self.reserve_head(head)
            store_i64(self.mapping.data + INDEX_HEADER_AT_BEGIN_PHYSICAL, end_physical)
            store_i64(self.mapping.data + INDEX_HEADER_AT_END_PHYSICAL, end_physical)
            store_i64(self.mapping.data + INDEX_HEADER_AT_BEGIN_TIMESTAMP, end_timestamp)
            store_i64(self.mapping.data + INDEX_HEADER_AT_END_TIMESTAMP, end_timestamp)
            store_i32(self.mapping.data + INDEX_HEADER_AT_COUNT, 1)
        self.count = max(load_i32(self.mapping.data + INDEX_HEADER_AT_COUNT), 1)
        if self.count > capacity:
            raise StoreFormatError(f"{path} has {self.count} entries of {capacity}: delete it")

    cdef reserve_head(self, int64_t head):
        try:
            self.files.reserve(self.mapping, 0, head)
        except BackendError:
            self.files.remove(self.path)
            raise

    @property
    def end_timestamp(self):
        """Store time of the last entry's message, ms."""
        return load_i64(self.mapping.data + INDEX_HEADER_AT_END_TIMESTAMP)

    @property
    def begin_physical(self):
        """Physical offset of the first entry's message."""
        return load_i64(self.mapping.data + INDEX_HEADER_AT_BEGIN_PHYSICAL)

    @property
    def end_physical(self):
        """Physical offset of the last entry's message."""
        return load_i64(self.mapping.data + INDEX_HEADER_AT_END_PHYSICAL)

    @property
    def full(self):
        """Whether no further entry fits."""
        return self.count >= self.capacity

    cdef int64_t begin(self) noexcept nogil:
        return load_i64(self.mapping.data + INDEX_HEADER_AT_BEGIN_TIMESTAMP)

    cdef uint8_t *slot_of(self, int32_t key_hash) noexcept nogil:
        return self.mapping.data + INDEX_HEADER + <int64_t> (key_hash % self.slots) * INDEX_SLOT

    cdef void expect(self, int32_t key_hash) noexcept nogil:
        prefetch(self.slot_of(key_hash))

    cdef void put(self, int32_t key_hash, int64_t physical_offset,
                  int64_t store_timestamp) noexcept nogil:
        cdef uint8_t *used
        cdef uint8_t *head = self.mapping.data
        cdef uint8_t *slot = self.slot_of(key_hash)
        cdef uint8_t *entry = self.entries + <int64_t> self.count * INDEX_ENTRY
        cdef int32_t previous = load_i32(slot)
        cdef int64_t begin = self.begin()
        cdef int64_t seconds = (store_timestamp - begin) // SECOND_MS if begin > 0 else 0
        if previous <= 0 or previous > self.count:
            previous = 0
        store_i32(entry, key_hash)
        store_i64(entry + INDEX_ENTRY_AT_PHYSICAL_OFFSET, physical_offset)
        store_i32(entry + INDEX_ENTRY_AT_SECONDS, <int32_t> min(max(seconds, 0), SECONDS_MAX))
        store_i32(entry + INDEX_ENTRY_AT_PREVIOUS, previous)
        store_i32(slot, self.count)
        if self.count <= 1:
            store_i64(head + INDEX_HEADER_AT_BEGIN_PHYSICAL, physical_offset)
            store_i64(head + INDEX_HEADER_AT_BEGIN_TIMESTAMP, store_timestamp)
        if previous == 0:
            used = head + INDEX_HEADER_AT_USED_SLOTS
            store_i32(used, load_i32(used) + 1)
        store_i64(head + INDEX_HEADER_AT_END_PHYSICAL, physical_offset)
        store_i64(head + INDEX_HEADER_AT_END_TIMESTAMP, store_timestamp)
        self.count += 1
        store_i32(head + INDEX_HEADER_AT_COUNT, self.count)

    def add(self, int32_t key_hash, int64_t physical_offset, int64_t store_timestamp):
        """Add one entry (RocketMQ: putKey); False when the file is full.

        Raises BackendError on a full disk.
        """
        if self.full:
            return False
        if self.count >= self.reserved:
            self.make_room()
        self.put(key_hash, physical_offset, store_timestamp)
        return True

    def make_room(self):
        """Reserve disk blocks for the next entries. Raises BackendError."""
        cdef int64_t head = self.entries - self.mapping.data
        cdef int32_t stop = min(self.capacity, self.count + STRETCH)
        self.files.reserve(
            self.mapping,
            head + <int64_t> self.count * INDEX_ENTRY,
            head + <int64_t> stop * INDEX_ENTRY,
        )
        self.reserved = stop

    def find(self, int32_t key_hash, int64_t begin_ms, int64_t end_ms):
        """Yield the physical offsets under that hash, newest first.

        Some may be of other times: the caller checks the record. It yields NOT_FOUND_YET in between
        while the search for the next one takes long.
        """
        cdef int32_t number = load_i32(self.slot_of(key_hash))
        cdef int32_t count = self.count
        cdef int32_t old_run = 0
        cdef int32_t previous
        cdef int64_t time
        cdef const uint8_t *entry
        cdef int32_t passed = 0
        while 0 < number < count and old_run < OLD_RUN_MAX:
            passed += 1
            if passed % PASSED_MAX == 0:
                yield NOT_FOUND_YET
            entry = self.entries + <int64_t> number * INDEX_ENTRY
            time = self.begin() + <int64_t> load_i32(entry + INDEX_ENTRY_AT_SECONDS) * SECOND_MS
            # Times are whole seconds; that of entry 1 may be measured from another file's end, and
            # second 0 is also what a record gets that is older than its file.
            old_run = old_run + 1 if time + SECOND_MS < begin_ms else 0
            if load_i32(entry) == key_hash and (
                number == 1 or time == self.begin() or begin_ms - SECOND_MS <= time <= end_ms
            ):
                yield load_i64(entry + INDEX_ENTRY_AT_PHYSICAL_OFFSET)
            previous = load_i32(entry + INDEX_ENTRY_AT_PREVIOUS)
            if previous >= number:
                break
            number = previous

    def checksum(self):
        """CRC-32 of header, slots and entries."""
        cdef int64_t used = self.entries - self.mapping.data + <int64_t> self.count * INDEX_ENTRY
        cdef int64_t at
        data = memoryview(self.mapping)
        crc = 0
        for at in range(0, used, SUMMED_AT_ONCE):
            crc = crc32(data[at:min(at + SUMMED_AT_ONCE, used)], crc)
        return crc

    def flush(self):
        """Sync the file. Raises BackendError."""
        self.files.sync_map(self.mapping)
