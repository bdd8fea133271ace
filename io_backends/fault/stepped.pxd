from libc.stdint cimport int64_t

from congreve.io_backends.backend cimport Backend


cdef class SteppedBackend(Backend):
    cdef int64_t target     # everything below is asked for
    cdef list attached
