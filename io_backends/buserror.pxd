# SIGBUS on a mapped file: the disk could not bring or make a page, or somebody cut the file.
from libc.stdint cimport int64_t, uint8_t

# Have the pages of a mapping replaced by zeros instead of ending the process, until forget().
# Both with the GIL held. Where more are mapped than can be watched, the rest is as before.
cdef void watch(uint8_t *data, int64_t size) noexcept
cdef void forget(uint8_t *data) noexcept
# How often that happened in this process: whoever counts on what was stored asks before and after.
cdef int bus_errors() noexcept nogil
