# How long the calling thread runs before another one may.
from libc.stdint cimport uint64_t

cdef extern from "<sys/syscall.h>" nogil:
    """
    #include <stdint.h>
    #include <string.h>
    #include <unistd.h>

    /* As the kernel's sched_attr, which not every C library declares. */
    struct congreve_sched_attr {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime_ns, deadline, period;
    };

    static inline void congreve_set_time_slice(uint64_t ns)
    {
        struct congreve_sched_attr wanted;
        memset(&wanted, 0, sizeof wanted);
        wanted.size = sizeof wanted;
        if (syscall(SYS_sched_getattr, 0, &wanted, sizeof wanted, 0) == 0) {
            wanted.runtime_ns = ns;
            syscall(SYS_sched_setattr, 0, &wanted, 0);
        }
    }
    """
    # Asks the scheduler for short slices: the thread then gets a core sooner when it wakes (Linux
    # from 6.12; others ignore it).
    void set_time_slice "congreve_set_time_slice"(uint64_t ns)
