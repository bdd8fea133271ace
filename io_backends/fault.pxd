from libc.stdint cimport int64_t

from congreve.io_backends.backend cimport Backend
from congreve.io_backends.pthread cimport pthread_cond_t


cdef class FaultBackend(Backend):
    # Guarded by `lock`: all below `target` is asked for; `stopping` ends the thread.
    cdef readonly Backend inner
    cdef readonly object plan
    cdef readonly list recorded     # of Group
    cdef readonly int groups
    cdef readonly int creates
    cdef int64_t target
    cdef bint stopping
    cdef pthread_cond_t wake
    cdef list attached
    cdef object thread

    cdef int64_t await_request(self) noexcept nogil
    cdef object finish(self, int64_t upto, int error)
