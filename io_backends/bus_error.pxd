# SIGBUS on a mapped file: the disk could not read or allocate a page, or the file was truncated.
from libc.stdint cimport int64_t, uint8_t

# Until forget(), a SIGBUS in this mapping replaces the page by zeros instead of ending the process.
# Callers of both hold the GIL. watch() returns the number that forget() takes, or -1 where too many
# mappings are watched already: a SIGBUS in this one ends the process.
cdef int watch(uint8_t *data, int64_t size) noexcept
cdef void forget(int number) noexcept
# The number of such faults in this process: code that depends on stored bytes compares it before
# and after.
cdef int bus_errors() noexcept nogil
