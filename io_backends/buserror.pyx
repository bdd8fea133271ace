"""SIGBUS on a mapped file: the page becomes zeros, the process goes on and knows of it.

Signal handlers belong to a process, so this is the one thing here that does too. A fault outside of
what is watched goes to whoever handled SIGBUS before.
"""

from libc.stdint cimport int64_t, uint8_t, uintptr_t
from libc.string cimport memset
from posix.mman cimport (
    MAP_ANONYMOUS, MAP_FAILED, MAP_FIXED, MAP_PRIVATE, PROT_READ, PROT_WRITE, mmap,
)
from posix.signal cimport SA_SIGINFO, sigaction, sigaction_t, siginfo_t

from congreve.io_backends.atomic cimport load_acquire_int, store_release_int

cdef extern from "<signal.h>" nogil:
    int SIGBUS
    int SA_ONSTACK

cdef enum:
    PAGE = 4096
    RANGES_MAX = 32768

cdef struct Range:
    uint8_t *start
    uint8_t *end

cdef Range ranges[RANGES_MAX]
cdef int used
cdef int caught
cdef bint installed
cdef sigaction_t before


cdef void watch(uint8_t *data, int64_t size) noexcept:
    global used
    cdef int i = 0
    install()
    while i < used and ranges[i].start != NULL:
        i += 1
    if i == RANGES_MAX:
        return
    ranges[i].end = data + (size + PAGE - 1) // PAGE * PAGE
    ranges[i].start = data
    used = max(used, i + 1)


cdef void forget(uint8_t *data) noexcept:
    cdef int i
    for i in range(used):
        if ranges[i].start == data:
            ranges[i].start = NULL
            return


cdef int bus_errors() noexcept nogil:
    return load_acquire_int(&caught)


cdef void install() noexcept:
    global installed
    cdef sigaction_t action
    if installed:
        return
    memset(&action, 0, sizeof(action))
    action.sa_sigaction = on_bus_error
    action.sa_flags = SA_SIGINFO | SA_ONSTACK
    installed = sigaction(SIGBUS, &action, &before) == 0


# Nothing here but a system call and stores: it interrupts any code.
cdef void on_bus_error(int number, siginfo_t *info, void *context) noexcept nogil:
    cdef uint8_t *at = <uint8_t *> info.si_addr
    cdef int i
    for i in range(used):
        if ranges[i].start != NULL and ranges[i].start <= at < ranges[i].end:
            at -= <uintptr_t> at % PAGE
            if mmap(at, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                    -1, 0) != MAP_FAILED:
                store_release_int(&caught, caught + 1)
                return
    sigaction(number, &before, NULL)


def count_bus_errors():
    return bus_errors()
