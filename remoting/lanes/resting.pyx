"""Connections that a lane does not read for a moment, because their requests were refused."""

cimport cython
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

from congreve.base.byte_buffer cimport double_ring

cdef int64_t FIRST_CAPACITY = 64
cdef int SLEEP_MS = 250


@cython.final
cdef class RestingConnections:
    """The connections of one lane that rest for `rest_ms`; only its thread calls this."""

    def __cinit__(self, int64_t rest_ms):
        self.rest_ms = rest_ms
        self.capacity = FIRST_CAPACITY
        self.rests = <Rest *> malloc(self.capacity * sizeof(Rest))
        if self.rests == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.rests)

    cdef void add(self, Lane lane, LaneConnection *connection) noexcept nogil:
        cdef Rest *rest
        if connection.fd < 0 or connection.resting:
            return
        if self.count == self.capacity and not self.grow():
            return
        rest = &self.rests[(self.first + self.count) % self.capacity]
        rest.connection, rest.until_ms = connection.id, lane.now_ms + self.rest_ms
        self.count += 1
        connection.resting = True
        lane.watch(connection)

    cdef int turn(self, Lane lane) noexcept nogil:
        cdef LaneConnection *connection
        cdef Rest rest
        while self.count:
            rest = self.rests[self.first]
            if rest.until_ms > lane.now_ms:
                return <int> (rest.until_ms - lane.now_ms)
            self.first = (self.first + 1) % self.capacity
            self.count -= 1
            connection = lane.table.find(rest.connection)
            if connection != NULL:
                connection.resting = False
                lane.resume(connection)
        return SLEEP_MS

    cdef bint grow(self) noexcept nogil:
        cdef void *grown = double_ring(self.rests, sizeof(Rest), self.first, self.capacity)
        if grown == NULL:
            return False
        self.rests, self.first, self.capacity = <Rest *> grown, 0, 2 * self.capacity
        return True
