"""The lock of everything that appends to the log."""

cimport cython
from libc.stdint cimport int64_t

from congreve.base.atomic cimport add_relaxed, load_acquire
from congreve.base.pthread cimport (
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_trylock,
    pthread_mutex_unlock,
    sched_yield,
)

cdef enum:
    YIELDS_MAX = 200    # some 100 us: a thread wakes up meanwhile


@cython.final
cdef class AppendLock:
    """The lock of the thread that appends to the log (RocketMQ: CommitLog.putMessageLock).

    ``with lock:`` holds it in Python code, which must be short: no message is appended meanwhile.
    """

    def __cinit__(self):
        pthread_mutex_init(&self.mutex, NULL)

    def __dealloc__(self):
        pthread_mutex_destroy(&self.mutex)

    def __enter__(self):
        self.take_with_gil()

    def __exit__(self, *_):
        pthread_mutex_unlock(&self.mutex)

    cdef void take(self) noexcept nogil:
        if pthread_mutex_trylock(&self.mutex):
            add_relaxed(&self.waiting, 1)
            pthread_mutex_lock(&self.mutex)
            add_relaxed(&self.waiting, -1)

    cdef void drop(self) noexcept nogil:
        pthread_mutex_unlock(&self.mutex)

    cdef void let_others_in(self) noexcept nogil:
        # The mutex is not fair: a thread that drops it and takes it again is quicker than one that
        # has to wake up.
        cdef int64_t waiting = load_acquire(&self.waiting)
        cdef int _
        for _ in range(YIELDS_MAX):
            if not waiting or load_acquire(&self.waiting) < waiting:
                return
            sched_yield()

    cdef int take_with_gil(self) except -1:
        # A thread that waits gives up the GIL, because the lock's holder may need the GIL. It takes
        # the lock with the GIL only, so that no lane waits for this thread's turn: hence the loop.
        while pthread_mutex_trylock(&self.mutex):
            with nogil:
                self.take()
                self.drop()
        return 0
