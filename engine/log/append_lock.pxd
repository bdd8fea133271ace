from congreve.io_backends.pthread cimport pthread_mutex_t


cdef class AppendLock:
    # What an append reads or writes changes under this lock alone. Files and mappings change under
    # it and the GIL.
    cdef pthread_mutex_t mutex

    # For code without the GIL.
    cdef void take(self) noexcept nogil
    cdef void drop(self) noexcept nogil
    # For code with the GIL, which others get while this thread waits.
    cdef int take_with_gil(self) except -1
