from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t

from congreve.broker.pull.validated_pull cimport KEY_MAX, ValidatedPulls
from congreve.engine.queue.queue_files cimport Mapping
from congreve.records.byte_table cimport Key
from congreve.remoting.lanes.mailbox cimport pthread_mutex_t
from congreve.remoting.wire.fast_headers cimport PullHeader


# What a lane knows of the pulls with one key. The lane's thread alone uses it, but for `pending`.
cdef struct LanePull:
    Key key
    PyObject *validated     # a ValidatedPull of its own; NULL: the event loop serves these pulls
    int64_t changes         # the numbers of ValidatedPulls when it was looked up
    int64_t kept
    PyObject *mapping       # of its own: the file of the queue that was read last, or NULL
    const uint8_t *file     # its bytes
    int64_t base            # and its place among those of all files
    int64_t pending         # the offset that was committed last and that the loop did not take; -1


cdef class LanePullTable:
    cdef ValidatedPulls pulls
    cdef Key **slots            # of LanePulls
    cdef Py_ssize_t capacity
    cdef Py_ssize_t count
    cdef LanePull **uncollected  # those with a pending offset; as much room as there are slots
    cdef Py_ssize_t uncollected_count
    cdef pthread_mutex_t mutex  # guards these and `pending`
    cdef Py_ssize_t files       # mappings that they keep
    cdef Py_ssize_t files_max
    cdef list collected         # pending offsets of pulls that the table has no more
    cdef uint8_t[KEY_MAX] bytes  # the key of the pull at hand

    # The pulls that this one belongs to; NULL where the event loop must serve it.
    cdef LanePull *find(self, const PullHeader *pull) noexcept nogil
    # Notes the offset that a pull commits.
    cdef void commit(self, LanePull *known, int64_t offset) noexcept nogil

    # Keeps the file of the queue that such pulls read next; drops it.
    cdef int keep_file(self, LanePull *known, Mapping mapping, int64_t base) except -1
    cdef int drop_file(self, LanePull *known) except -1

    cdef LanePull *known(self, const Key *key) noexcept nogil
    cdef bint learn_with_gil(self, const Key *key) noexcept with gil
    cdef int learn(self, const Key *key) except -1
    cdef LanePull *add(self, const Key *key) except NULL
    cdef int grow(self) except -1
    cdef int clear(self) except -1
    cdef int remove(self, LanePull *known) except -1
