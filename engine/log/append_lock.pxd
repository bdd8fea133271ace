from libc.stdint cimport int64_t

from congreve.base.pthread cimport pthread_mutex_t


cdef class AppendLock:
    # Code holds this lock when it changes what an append reads or writes. When it changes files and
    # mappings, it also holds the GIL.
    cdef pthread_mutex_t mutex
    cdef int64_t waiting        # threads

    # For code without the GIL.
    cdef void take(self) noexcept nogil
    cdef void drop(self) noexcept nogil
    # After drop(): lets a thread that waits take the lock.
    cdef void let_others_in(self) noexcept nogil
    # For code with the GIL, which others get while this thread waits.
    cdef int take_with_gil(self) except -1
