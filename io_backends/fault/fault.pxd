from libc.stdint cimport int64_t

from congreve.base.pthread cimport pthread_cond_t
from congreve.io_backends.backend cimport Backend


cdef class FaultBackend(Backend):
    # Guarded by `lock`: all below `target` is asked for; `stopping` ends the thread.
    cdef readonly Backend inner
    """The backend that holds the bytes."""
    cdef readonly object plan
    """The FaultPlan: which groups and creates fail."""
    cdef readonly list recorded
    """With `plan.record`: all groups in order, each of them ended by a barrier."""
    cdef readonly int groups
    """Groups so far."""
    cdef readonly int creates
    """Calls of create() so far."""
    cdef int64_t target
    cdef bint stopping
    cdef pthread_cond_t wake
    cdef list attached
    cdef object note            # called with the name, path and bytes of each call
    cdef object thread

    cdef int64_t await_request(self) noexcept nogil
    cdef object finish(self, int64_t upto, int error)
