from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t

from congreve.base.pthread cimport pthread_mutex_t
from congreve.broker.pull.lanes.pull_plan cimport KEY_MAX, PullPlans
from congreve.broker.pull.lanes.plan_table cimport LanePlan, LanePlanTable
from congreve.engine.queue.queue_files cimport Mapping
from congreve.remoting.wire.fast_headers cimport PullHeader


# A pull plan of a lane. Only the lane's thread uses it, except for `pending`.
cdef struct LanePull:
    LanePlan cached         # a PullPlan
    PyObject *mapping       # owned: the queue's file that was read last, or NULL
    const uint8_t *file     # its bytes
    int64_t base            # and their offset in the queue
    bint costly             # the filter took long once: the event loop reads many entries for it
    bint by_loop            # the event loop answers with messages, too (PullPlans.by_loop)
    int64_t timeout_ms      # how long such pulls wait; -1: as long as the request says
    int64_t pending         # the last committed offset that the loop has not taken; -1: none


cdef class LanePullTable(LanePlanTable):
    cdef PullPlans plans
    cdef LanePull **uncollected  # pulls with a pending offset; there is room for all entries
    cdef Py_ssize_t uncollected_count
    cdef Py_ssize_t uncollected_max
    cdef pthread_mutex_t mutex  # guards `uncollected` and `pending`
    cdef Py_ssize_t files       # mapped files
    cdef Py_ssize_t files_max
    cdef list collected         # pending offsets of removed pulls
    cdef uint8_t[KEY_MAX] bytes  # the key of the current pull

    # Returns the entry for this pull; NULL if the event loop must serve it.
    cdef LanePull *find(self, const PullHeader *pull) noexcept nogil
    # Records the offset that a pull commits.
    cdef void commit(self, LanePull *known, int64_t offset) noexcept nogil

    # Map the file of the queue that such pulls read next; unmap it.
    cdef int keep_file(self, LanePull *known, Mapping mapping, int64_t base) except -1
    cdef int drop_file(self, LanePull *known) except -1

    cdef int make_room(self) except -1
