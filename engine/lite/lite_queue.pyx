"""The index of the lite topics of one queue: which entries are of which lite topic.

A message of a lite topic is an ordinary record of its parent topic with the property __LITE_TOPIC.
So the log and the parent's queues have all that is durable, and no lite topic has a file. The index
is in memory: about 100 bytes and the name for each lite topic, 8 bytes for each entry of the queue.
A start makes it again from the queue's entries.
"""

cimport cython
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc, PyMem_Realloc
from libc.stdint cimport UINT32_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memmove, memset

from congreve.base.atomic cimport load_acquire
from congreve.engine.log.commit_log cimport CommitLog
from congreve.engine.queue.consume_queue cimport ConsumeQueue
from congreve.records.byte_table cimport Key, add_entry, empty_slot, key_of, move_slots, slot_of
from congreve.records.message.properties cimport LITE_TOPIC
from congreve.records.record cimport RECORD_OK, RecordView, check, property_of

from typing import NamedTuple

from congreve.engine.errors import StoreError

cdef enum:
    NAME_MAX = 64       # bytes

cdef Py_ssize_t FIRST_CAPACITY = 64


class LiteState(NamedTuple):
    """What a queue has of a lite topic: its first and its last offset, how many messages, and when
    the last one was stored, in ms since 1970. (RocketMQ 5.5: TopicOffset.)
    """

    first: int
    last: int
    messages: int
    stored_ms: int


@cython.final
cdef class LiteQueue:
    """The lite topics of one queue of a parent topic; one thread at a time uses it.

    (RocketMQ 5.5: LiteLifecycleManager, the light message queues of MultiDispatch.)
    """

    def __cinit__(self, CommitLog log not None, ConsumeQueue queue not None):
        self.log, self.queue = log, queue
        self.capacity = FIRST_CAPACITY
        self.slots = <Key **> PyMem_Calloc(self.capacity, sizeof(Key *))
        if self.slots == NULL:
            raise MemoryError()
        self.begin = self.end = load_acquire(&queue.min_offset)
        self.first_chunk = self.begin // LINKS

    def __dealloc__(self):
        cdef int64_t i
        for i in range(self.chunk_count):
            PyMem_Free(self.chunks[i])
        for i in range(self.lite_end):
            PyMem_Free(self.lites[i])
        PyMem_Free(self.chunks)
        PyMem_Free(self.lites)
        PyMem_Free(self.free_numbers)
        PyMem_Free(self.slots)
        PyMem_Free(self.noted)

    # --- following the queue

    def catch_up(self, int64_t most, int64_t ttl_ms=0):
        """Add the next entries that readers see, `most` at most; returns how many.

        A lite topic that has had no message for longer than `ttl_ms` begins again with its next one
        (0: never), as if it had been deleted meanwhile: so a start finds what the last run had.
        """
        cdef int64_t first, stop
        low = load_acquire(&self.queue.min_offset)
        if low > self.begin:
            self.drop_before(low)
        stop = min(self.log.end_of(self.queue), self.end + most)
        if stop < self.end:
            raise StoreError(
                f"queue {self.queue.queue_id} of {self.queue.topic} ends at {stop}, before"
                f" {self.end}: make its index again"
            )
        first = self.end
        while self.end < stop:
            self.add(self.end, ttl_ms)
            self.end += 1
        self.segment = None     # what is mapped cannot expire
        return self.end - first

    cdef int add(self, int64_t offset, int64_t ttl_ms) except -1:
        cdef int64_t place, tags_code, left
        cdef int32_t size, length = 0
        cdef const uint8_t *name
        cdef RecordView record
        cdef Link *link
        cdef Lite *lite
        self.make_chunk(offset)
        link = self.link_at(offset)
        link.lite, link.step = NO_LITE, 0
        if not self.queue.entry(offset, &place, &size, &tags_code):
            return 0
        if self.segment is None or not (
            self.segment.base_offset <= place < self.segment.base_offset + self.segment.size
        ):
            self.segment = self.log.segment_at(place)
            if self.segment is None:
                return 0
        left = self.segment.published_end() - place
        if left <= 0 or check(
            self.segment.data + (place - self.segment.base_offset), left, place, False, &record
        ) != RECORD_OK:
            return 0
        name = property_of(&record, LITE_TOPIC, &length)
        if name == NULL or not 0 < length <= NAME_MAX:
            return 0
        lite = self.lite_of(name, length, True)
        if not self.has_messages(lite) or (
            ttl_ms > 0 and record.store_timestamp - lite.stored_ms > ttl_ms
        ) or offset - lite.last > UINT32_MAX:
            self.count += lite.count == 0
            lite.first, lite.count = offset, 0
        else:
            self.link_at(lite.last).step = <uint32_t> (offset - lite.last)
        lite.last = offset
        lite.count += 1
        lite.stored_ms = record.store_timestamp
        link.lite = lite.number
        if lite.watched:
            self.note(lite)
        return 0

    cdef bint has_messages(self, Lite *lite) noexcept nogil:
        """Whether the lite topic has a message that the queue still has; moves its first one."""
        cdef Link *link
        if lite.first < 0:
            return False
        while lite.first < self.begin and lite.first != lite.last:
            link = self.link_at(lite.first)
            if link == NULL or link.step == 0:
                break
            lite.first += link.step
            lite.count -= 1
        return lite.first >= self.begin

    cdef int note(self, Lite *lite) except -1:
        if lite.noted:
            return 0
        if self.noted_count == self.noted_room:
            self.noted_room = max(2 * self.noted_room, 64)
            noted = <uint32_t *> PyMem_Realloc(self.noted, self.noted_room * sizeof(uint32_t))
            if noted == NULL:
                raise MemoryError()
            self.noted = noted
        self.noted[self.noted_count] = lite.number
        self.noted_count += 1
        lite.noted = True
        return 0

    def arrivals(self):
        """The watched lite topics with new messages since the last call."""
        cdef uint32_t i
        cdef Lite *lite
        found = []
        for i in range(self.noted_count):
            lite = self.lites[self.noted[i]]
            if lite != NULL and lite.noted:
                lite.noted = False
                if self.has_messages(lite):
                    found.append(name_of(lite))
        self.noted_count = 0
        return found

    # --- the links

    cdef Link *link_at(self, int64_t offset) noexcept nogil:
        """The link of an entry; NULL if the index has none."""
        cdef int64_t chunk = offset // LINKS - self.first_chunk
        if not 0 <= chunk < self.chunk_count:
            return NULL
        return &self.chunks[chunk][offset % LINKS]

    cdef int make_chunk(self, int64_t offset) except -1:
        cdef int64_t chunk = offset // LINKS - self.first_chunk
        if chunk < self.chunk_count:
            return 0
        if self.chunk_count == self.chunk_room:
            self.chunk_room = max(2 * self.chunk_room, 16)
            chunks = <Link **> PyMem_Realloc(self.chunks, self.chunk_room * sizeof(Link *))
            if chunks == NULL:
                raise MemoryError()
            self.chunks = chunks
        self.chunks[self.chunk_count] = <Link *> PyMem_Malloc(LINKS * sizeof(Link))
        if self.chunks[self.chunk_count] == NULL:
            raise MemoryError()
        memset(self.chunks[self.chunk_count], 0xFF, LINKS * sizeof(Link))
        self.chunk_count += 1
        return 0

    cdef int drop_before(self, int64_t offset) except -1:
        """Forget the entries before `offset`, which the queue does not have any more.

        The chunks that hold only such entries go when no lite topic begins in them.
        """
        cdef int64_t chunks
        cdef uint32_t i
        self.begin = offset
        self.end = max(self.end, offset)
        chunks = min(offset // LINKS - self.first_chunk, self.chunk_count)
        if chunks <= 0:
            if self.chunk_count == 0:
                self.first_chunk = offset // LINKS
            return 0
        for i in range(self.lite_end):
            if self.lites[i] != NULL and not self.has_messages(self.lites[i]):
                self.count -= self.lites[i].count > 0
                self.lites[i].first = self.lites[i].last = -1
                self.lites[i].count = 0
        for i in range(<uint32_t> chunks):
            PyMem_Free(self.chunks[i])
        self.chunk_count -= chunks
        memmove(self.chunks, self.chunks + chunks, self.chunk_count * sizeof(Link *))
        self.first_chunk += chunks
        if self.chunk_count == 0:
            self.first_chunk = offset // LINKS
        return 0

    # --- the lite topics

    cdef Lite *lite_of(self, const uint8_t *name, int64_t length, bint make) except? NULL:
        """The lite topic with a name; NULL without one, unless it may `make` it."""
        cdef Key key = key_of(name, <int32_t> length)
        cdef Lite *lite = <Lite *> slot_of(self.slots, self.capacity, &key)[0]
        cdef Key **doubled
        cdef uint32_t number
        if lite != NULL or not make:
            return lite
        if (self.used + 1) * 2 > self.capacity:
            doubled = <Key **> PyMem_Calloc(2 * self.capacity, sizeof(Key *))
            if doubled == NULL:
                raise MemoryError()
            move_slots(self.slots, self.capacity, doubled)
            PyMem_Free(self.slots)
            self.slots, self.capacity = doubled, 2 * self.capacity
        if self.free_count == 0 and self.lite_end == self.lite_room:
            self.grow_lites()
        lite = <Lite *> add_entry(self.slots, self.capacity, &key, sizeof(Lite))
        if self.free_count:
            self.free_count -= 1
            number = self.free_numbers[self.free_count]
        else:
            number = self.lite_end
            self.lite_end += 1
        lite.number = number
        lite.first = lite.last = -1
        self.lites[number] = lite
        self.used += 1
        return lite

    cdef int grow_lites(self) except -1:
        cdef uint32_t room = max(2 * self.lite_room, 64)
        lites = <Lite **> PyMem_Realloc(self.lites, room * sizeof(Lite *))
        if lites == NULL:
            raise MemoryError()
        self.lites = lites
        numbers = <uint32_t *> PyMem_Realloc(self.free_numbers, room * sizeof(uint32_t))
        if numbers == NULL:
            raise MemoryError()
        self.free_numbers, self.lite_room = numbers, room
        return 0

    cdef int remove(self, Lite *lite) except -1:
        self.count -= lite.count > 0
        empty_slot(self.slots, self.capacity, slot_of(self.slots, self.capacity, &lite.name))
        self.lites[lite.number] = NULL
        self.free_numbers[self.free_count] = lite.number
        self.free_count += 1
        self.used -= 1
        PyMem_Free(lite)
        return 0

    def watch(self, str name, bint watched):
        """Let arrivals() name the lite topic, or not any more; it may have no message so far."""
        cdef bytes text = name.encode()
        cdef Lite *lite = self.lite_of(text, len(text), watched)
        if lite == NULL:
            return
        lite.watched = watched
        if not watched and lite.count == 0:
            self.remove(lite)

    def state(self, str name):
        """The LiteState of a lite topic; None without messages."""
        cdef bytes text = name.encode()
        cdef Lite *lite = self.lite_of(text, len(text), False)
        if lite == NULL or not self.has_messages(lite):
            return None
        return LiteState(lite.first, lite.last, lite.count, lite.stored_ms)

    def offsets(self, str name, int64_t offset, int64_t most):
        """The first offsets of a lite topic's messages from `offset` on, `most` at most."""
        cdef bytes text = name.encode()
        cdef Lite *lite = self.lite_of(text, len(text), False)
        cdef Link *link
        cdef int64_t at
        found = []
        if lite == NULL or not self.has_messages(lite) or offset > lite.last:
            return found
        at = lite.first
        if offset > at:
            link = self.link_at(offset - 1)     # where the reader is, usually
            if link != NULL and link.lite == lite.number and offset - 1 >= self.begin:
                at = offset - 1
        while at < offset:
            at += self.link_at(at).step
        while len(found) < most:
            found.append(at)
            if at == lite.last:
                break
            at += self.link_at(at).step
        return found

    def expire(self, int64_t before_ms, int64_t start, int64_t most):
        """Remove the lite topics whose last message was stored before `before_ms`, or is gone.

        Looks at `most` places from `start` on. Returns their names, and where the next call starts;
        0: at the end. One that is watched stays, without messages.
        """
        cdef int64_t i, stop = min(start + most, <int64_t> self.lite_end)
        cdef Lite *lite
        gone = []
        for i in range(start, stop):
            lite = self.lites[i]
            if lite == NULL:
                continue
            if self.has_messages(lite) and lite.stored_ms >= before_ms:
                continue
            if lite.first >= 0 or not lite.watched:
                gone.append(name_of(lite))
                self.clear(lite)
        return gone, 0 if stop == self.lite_end else stop

    def forget(self, str name):
        """Remove a lite topic; one that is watched stays, without messages."""
        cdef bytes text = name.encode()
        cdef Lite *lite = self.lite_of(text, len(text), False)
        if lite != NULL:
            self.clear(lite)

    cdef int clear(self, Lite *lite) except -1:
        """Forget the messages of a lite topic, and the lite topic unless it is watched."""
        if not lite.watched:
            return self.remove(lite)
        self.count -= lite.count > 0
        lite.first = lite.last = -1
        lite.count = 0
        return 0

    def names(self, int64_t start, int64_t most):
        """Names of lite topics with messages, and where the next call starts; 0: at the end.

        It looks at `most` places from `start` on.
        """
        cdef int64_t i, stop = min(start + most, <int64_t> self.lite_end)
        found = []
        for i in range(start, stop):
            if self.lites[i] != NULL and self.has_messages(self.lites[i]):
                found.append(name_of(self.lites[i]))
        return found, 0 if stop == self.lite_end else stop


cdef str name_of(const Lite *lite):
    return lite.name.bytes[:lite.name.length].decode("utf-8", "replace")
