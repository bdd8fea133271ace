"""Queues by topic and id, for passes over many records that hold no GIL."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from congreve.records.byte_compare cimport same
from congreve.records.byte_table cimport hash_bytes

import re

from congreve.records.layout import TOPIC_MAX
from congreve.records.message.topics import PARKED

cdef int64_t FIRST_CAPACITY = 256
cdef object DELAYED = frozenset(topic.encode() for topic in PARKED)

# RocketMQ: TopicValidator. A damaged name must not become a path.
cdef object TOPIC = re.compile(rb"[%%|a-zA-Z0-9_-]{1,%d}" % TOPIC_MAX)


def is_topic(bytes name):
    """Whether the bytes are a valid topic name (RocketMQ: TopicValidator)."""
    return TOPIC.fullmatch(name) is not None


def is_delayed(bytes topic):
    """Whether the entries of a topic hold due times in place of tag hashes."""
    return topic in DELAYED


@cython.final
cdef class QueueMap:
    """A map from (topic, queue id) to queue for compiled code (queue_map.pxd).

    (RocketMQ: DefaultMessageStore.findConsumeQueue.)
    """

    def __cinit__(self):
        self.queues = []
        self.capacity = FIRST_CAPACITY
        self.table = <KnownQueue *> calloc(self.capacity, sizeof(KnownQueue))
        if self.table == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.table)

    cdef KnownQueue *find(self, const uint8_t *topic, int32_t length,
                          int32_t queue_id) noexcept nogil:
        cdef uint64_t mask = self.capacity - 1
        cdef uint64_t at = (
            hash_bytes(topic, length) + <uint64_t> queue_id * 0x9E3779B97F4A7C15U
        ) & mask
        cdef KnownQueue *known
        while True:
            known = &self.table[at]
            if known.topic == NULL or (
                known.queue_id == queue_id
                and same(known.topic, known.topic_length, topic, length)
            ):
                return known
            at = (at + 1) & mask

    cdef KnownQueue *add(self, bytes topic, int32_t queue_id, queue) except NULL:
        cdef KnownQueue *known
        if len(self.queues) * 2 >= self.capacity:
            self.grow()
        known = self.find(<const uint8_t *> PyBytes_AS_STRING(topic), <int32_t> len(topic),
                          queue_id)
        self.queues.append((topic, queue))
        known.topic = <const uint8_t *> PyBytes_AS_STRING(topic)
        known.topic_length = <int32_t> len(topic)
        known.queue_id = queue_id
        known.delayed = topic in DELAYED
        known.queue = NULL if queue is None else <PyObject *> queue
        return known

    cdef int clear(self) except -1:
        memset(self.table, 0, self.capacity * sizeof(KnownQueue))
        self.queues = []
        return 0

    cdef int grow(self) except -1:
        cdef KnownQueue *old = self.table
        cdef int64_t old_capacity = self.capacity, i
        cdef KnownQueue *fresh = <KnownQueue *> calloc(old_capacity * 2, sizeof(KnownQueue))
        if fresh == NULL:
            raise MemoryError
        self.table, self.capacity = fresh, old_capacity * 2
        for i in range(old_capacity):
            if old[i].topic != NULL:
                self.find(old[i].topic, old[i].topic_length, old[i].queue_id)[0] = old[i]
        free(old)
        return 0
