"""SIGBUS on a mapped file: the handler replaces the page by zeros, counts it, and continues.

A signal handler belongs to the process, so this module has the only global state. A SIGBUS outside
the watched mappings goes to the previously installed handler.
"""

from libc.stdint cimport int64_t, uint8_t, uintptr_t
from libc.string cimport memset
from posix.mman cimport (
    MAP_ANONYMOUS, MAP_FAILED, MAP_FIXED, MAP_PRIVATE, PROT_READ, PROT_WRITE, mmap,
)
from posix.signal cimport SA_SIGINFO, sigaction, sigaction_t, siginfo_t

from congreve.base.atomic cimport load_acquire_int, store_release_int
from congreve.io_backends.page cimport PAGE

cdef extern from "<signal.h>" nogil:
    int SIGBUS
    int SA_ONSTACK

cdef enum:
    RANGES_MAX = 32768

cdef struct Range:
    uint8_t *start
    uint8_t *end

cdef Range ranges[RANGES_MAX]
cdef int used
cdef int free_from    # no range below it is free
cdef int caught
cdef bint installed
cdef sigaction_t before


cdef int watch(uint8_t *data, int64_t size) noexcept:
    global used, free_from
    install()
    cdef int i = free_from
    while i < used and ranges[i].start != NULL:
        i += 1
    free_from = i
    if i == RANGES_MAX:
        return -1
    ranges[i].end = data + (size + PAGE - 1) // PAGE * PAGE
    ranges[i].start = data
    used = max(used, i + 1)
    return i


cdef void forget(int number) noexcept:
    global free_from
    if number >= 0:
        ranges[number].start = NULL
        free_from = min(free_from, number)


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


# The handler may interrupt any code, so it makes only a system call and stores.
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
