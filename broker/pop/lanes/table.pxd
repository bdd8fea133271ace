from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.broker.pop.lanes.pop_plan cimport KEY_MAX, PopPlans, PopQueue
from congreve.broker.pull.lanes.plan_table cimport LanePlan, LanePlanTable
from congreve.broker.pull.lanes.polling cimport WaitCounts
from congreve.engine.queue.queue_files cimport Mapping
from congreve.remoting.wire.fast_headers cimport PopHeader


# The file of a queue that was read last.
cdef struct PopFile:
    PyObject *mapping       # owned, or NULL
    const uint8_t *file     # its bytes
    int64_t base            # and their offset in the queue


# A pop plan of a lane. Only the lane's thread uses it.
cdef struct LanePop:
    LanePlan cached         # a PopPlan
    const PopQueue *queues  # of `plan`
    int32_t count           # of those of the topic
    int32_t retries         # and of those with what comes again, which follow
    PopFile *files          # of both
    int32_t direction       # over the former; 0: each pop begins with another one
    int32_t retries_first   # of 100 pops
    WaitCounts *waiting     # pops of the group and topic
    int64_t waiting_max
    int64_t all_waiting_max
    int64_t nothing_at      # notices of LanePolling when a pop found nothing; -1: not known
    int64_t passed_at       # notices when pops that waited were given to the event loop,
    int64_t passed          # and their number
    bint costly             # the filter took long once: the event loop reads many entries for it


cdef class LanePopTable(LanePlanTable):
    cdef PopPlans plans
    cdef Py_ssize_t files       # mapped files
    cdef Py_ssize_t files_max
    cdef uint8_t[KEY_MAX] bytes  # the key of the current pop

    # Returns the entry for this pop; NULL if the event loop must serve it.
    cdef LanePop *find(self, const PopHeader *pop) noexcept nogil
    # Maps the file of a queue that such pops read next, or unmaps it with None.
    cdef int keep_file(self, LanePop *known, int32_t queue, Mapping mapping,
                       int64_t base) except -1

    cdef int clear_files(self) except -1
    cdef int drop_files(self, LanePop *known) except -1
