"""Pops that a lane has answered to clients that were gone: the lane learns that a bit later."""

cimport cython
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

from congreve.base.byte_buffer cimport append_bytes, make_room, release

import struct

cdef enum:
    LOST_MS = 500           # after which a pop that was answered is known to have had a client
    KEPT_BYTES = 256 << 10  # of the answers of that time; more are not kept

_HEAD = struct.Struct("=6q")


cdef inline int64_t size_of(const AnsweredPop *pop) noexcept nogil:
    return <int64_t> sizeof(AnsweredPop) + pop.group_length + pop.topic_length + pop.offsets_length


def lost_pops(bytes data not None):
    """The pops of a mailbox entry: group, topic, pop time in ms, and the text of their offsets."""
    cdef Py_ssize_t at = 0
    found = []
    while at < len(data):
        _, _, pop_ms, *lengths = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        texts = []
        for length in lengths:
            texts.append(data[at:at + length].decode())
            at += length
        group, topic, offsets = texts
        found.append((group, topic, pop_ms, offsets))
    return found


@cython.final
cdef class LostPops:
    """The pops that were answered lately, and those whose clients were gone.

    (RocketMQ: PopMessageProcessor, which notes no checkpoint for a closed channel.)
    """

    def __dealloc__(self):
        release(&self.answered)
        release(&self.lost)

    cdef void note(self, int64_t connection, int64_t now_ms, int64_t pop_ms, Slice group,
                   Slice topic, Slice offsets) noexcept nogil:
        cdef AnsweredPop pop
        cdef int64_t size
        pop.connection, pop.answered_ms, pop.pop_ms = connection, now_ms, pop_ms
        pop.group_length, pop.topic_length = group.length, topic.length
        pop.offsets_length = offsets.length
        size = size_of(&pop)
        self.forget(now_ms)
        if self.answered.used - self.answered.at + size > KEPT_BYTES:
            self.answered.at = self.answered.used
        if not append_bytes(&self.answered, <uint8_t *> &pop, sizeof(AnsweredPop)):
            return
        if not make_room(&self.answered, self.answered.used + size):
            self.answered.used -= <int64_t> sizeof(AnsweredPop)
            return
        append_bytes(&self.answered, group.data, group.length)
        append_bytes(&self.answered, topic.data, topic.length)
        append_bytes(&self.answered, offsets.data, offsets.length)

    cdef void closed(self, int64_t connection, int64_t now_ms) noexcept nogil:
        cdef AnsweredPop pop
        cdef int64_t at, size
        self.forget(now_ms)
        at = self.answered.at
        while at < self.answered.used:
            memcpy(&pop, self.answered.data + at, sizeof(AnsweredPop))
            size = size_of(&pop)
            if pop.connection == connection:
                append_bytes(&self.lost, self.answered.data + at, size)
                pop.connection = -1
                memcpy(self.answered.data + at, &pop, sizeof(AnsweredPop))
            at += size

    cdef void forget(self, int64_t now_ms) noexcept nogil:
        """Forget the answers whose clients were there."""
        cdef AnsweredPop pop
        while self.answered.at < self.answered.used:
            memcpy(&pop, self.answered.data + self.answered.at, sizeof(AnsweredPop))
            if pop.answered_ms + LOST_MS > now_ms:
                return
            self.answered.at += size_of(&pop)
