# How long the calling thread runs before another one that waits for the core gets its turn.
from libc.stdint cimport uint64_t

cdef extern from * nogil:
    """
    #include <stdint.h>
    #include <sys/syscall.h>
    #include <unistd.h>

    /* struct sched_attr of linux/sched/types.h, which older headers lack. */
    struct congreve_sched_attr {
        uint32_t size;
        uint32_t policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime;
        uint64_t deadline;
        uint64_t period;
    };

    static inline void congreve_wish_slice(uint64_t ns)
    {
        struct congreve_sched_attr attr;
        if (!syscall(SYS_sched_getattr, 0, &attr, sizeof attr, 0)) {
            attr.runtime = ns;
            syscall(SYS_sched_setattr, 0, &attr, 0);
        }
    }
    """
    void wish_slice "congreve_wish_slice"(uint64_t ns)
