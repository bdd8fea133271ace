"""Topic name -> queue count and queues, for compiled code that holds no GIL.

It is read and changed under the append lock. The table has only topics that take ordinary sends;
the broker's topic manager decides which.
"""

cimport cython
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memcpy

from congreve.broker.figures.message_counts cimport TopicCounts
from congreve.engine.log.append_lock cimport AppendLock
from congreve.engine.queue.consume_queue cimport ConsumeQueue
from congreve.records.byte_table cimport Key, empty_slot, key_of, move_slots, slot_of

cdef Py_ssize_t FIRST_CAPACITY = 64


cdef void free_entry(TopicEntry *entry) noexcept:
    cdef int32_t i
    for i in range(entry.queue_count):
        Py_XDECREF(entry.queues[i])
    PyMem_Free(entry)


@cython.final
cdef class TopicTable:
    """Topics that take ordinary sends; compiled code finds them under `lock`, without the GIL."""

    def __cinit__(self, AppendLock lock not None):
        self.lock = lock
        self.retired = []
        self.counts = {}
        self.capacity = FIRST_CAPACITY
        self.slots = <Key **> PyMem_Calloc(self.capacity, sizeof(Key *))
        if self.slots == NULL:
            raise MemoryError()

    def __dealloc__(self):
        cdef Py_ssize_t i
        if self.slots != NULL:
            for i in range(self.capacity):
                if self.slots[i] != NULL:
                    free_entry(<TopicEntry *> self.slots[i])
            PyMem_Free(self.slots)

    def __len__(self):
        return self.count

    def __contains__(self, str topic):
        name = topic.encode()
        return self.find(name, <int32_t> len(name)) != NULL

    cdef TopicEntry *find(self, const uint8_t *name, int32_t length) noexcept nogil:
        cdef Key key = key_of(name, length)
        return self.find_key(&key)

    cdef TopicEntry *find_key(self, const Key *name) noexcept nogil:
        return <TopicEntry *> slot_of(self.slots, self.capacity, name)[0]

    def put(self, str topic, int32_t read_queues, int32_t write_queues, *,
            bint takes_normal=True, bint takes_lite=False):
        """Add the topic, or replace its entry; its queues are then opened again."""
        self.remove(topic)
        name = topic.encode()
        cdef int32_t queues = max(read_queues, write_queues, 0)
        # One block: with thousands of topics each further block costs a cache miss.
        cdef TopicCounts counts
        cdef TopicEntry *entry = <TopicEntry *> PyMem_Calloc(
            1, sizeof(TopicEntry) + queues * sizeof(PyObject *) + <Py_ssize_t> len(name)
        )
        if entry == NULL:
            raise MemoryError()
        entry.queues = <PyObject **> (entry + 1)
        cdef uint8_t *copy = <uint8_t *> (entry.queues + queues)
        memcpy(copy, <const uint8_t *> name, len(name))
        entry.name = key_of(copy, <int32_t> len(name))
        entry.queue_count = queues
        entry.write_queues = write_queues
        entry.takes_normal = takes_normal
        entry.takes_lite = takes_lite
        if topic in self.counts:
            counts = self.counts[topic]
            entry.counts = <void *> counts
        with self.lock:
            if (self.count + 1) * 2 > self.capacity:
                self.grow()
            slot_of(self.slots, self.capacity, &entry.name)[0] = &entry.name
            self.count += 1

    def remove(self, str topic):
        """Remove the topic, if the table has it."""
        name = topic.encode()
        cdef Key key = key_of(name, <int32_t> len(name))
        cdef Key **slot = slot_of(self.slots, self.capacity, &key)
        cdef TopicEntry *entry = <TopicEntry *> slot[0]
        if entry == NULL:
            return
        with self.lock:
            empty_slot(self.slots, self.capacity, slot)
            self.count -= 1
        self.retire(entry)

    def forget(self, str topic):
        """Remove a deleted topic, and what was counted of it."""
        self.remove(topic)
        if topic in self.counts:
            self.retired.append(self.counts.pop(topic))

    def counts_of(self, str topic):
        """What is counted of a topic."""
        found = self.counts.get(topic)
        if found is None:
            found = self.counts[topic] = TopicCounts()
        return found

    def set_queue(self, str topic, ConsumeQueue queue):
        """Set one queue. Raises KeyError when the table has no such topic or queue id."""
        name = topic.encode()
        cdef TopicEntry *entry = self.find(name, <int32_t> len(name))
        if entry == NULL or not 0 <= queue.queue_id < entry.queue_count:
            raise KeyError(f"topic {topic} has no queue {queue.queue_id} in the table")
        if entry.queues[queue.queue_id] != NULL:
            self.retired.append(<ConsumeQueue> entry.queues[queue.queue_id])
        Py_INCREF(queue)
        cdef TopicCounts counts = self.counts_of(topic)
        with self.lock:
            entry.counts = <void *> counts
            Py_XDECREF(entry.queues[queue.queue_id])
            entry.queues[queue.queue_id] = <PyObject *> queue

    def take_retired(self):
        """What was replaced or deleted; compiled code may point to it until its next turn."""
        retired, self.retired = self.retired, []
        return retired

    cdef bint holds(self, void *queue, const uint8_t *name, int32_t length,
                    int32_t queue_id) noexcept nogil:
        cdef TopicEntry *entry = self.find(name, length)
        return entry != NULL and 0 <= queue_id < entry.queue_count and (
            <void *> entry.queues[queue_id] == queue
        )

    cdef int retire(self, TopicEntry *entry) except -1:
        cdef int32_t i
        for i in range(entry.queue_count):
            if entry.queues[i] != NULL:
                self.retired.append(<ConsumeQueue> entry.queues[i])
        free_entry(entry)
        return 0

    cdef int grow(self) except -1:
        cdef Key **doubled = <Key **> PyMem_Calloc(2 * self.capacity, sizeof(Key *))
        if doubled == NULL:
            raise MemoryError()
        move_slots(self.slots, self.capacity, doubled)
        PyMem_Free(self.slots)
        self.slots, self.capacity = doubled, 2 * self.capacity
        return 0
