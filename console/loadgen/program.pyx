"""The load generator: C, one thread, epoll, a closed or an open loop of requests."""

from cpython.mem cimport PyMem_Free, PyMem_Malloc


cdef extern from "loadgen.h":
    int loadgen_main(int argc, char **argv) nogil


def run(list words not None):
    """Run the generator with a command line, and return its exit code.

    It prints its result as one JSON object, and ends the process after an error. `words` are
    strings; the first is the name of the program.
    """
    cdef list encoded = [word.encode() for word in words]
    cdef int count = <int> len(encoded)
    cdef int status
    cdef int i
    cdef char **argv = <char **> PyMem_Malloc((count + 1) * sizeof(char *))
    if argv == NULL:
        raise MemoryError()
    for i in range(count):
        argv[i] = <bytes> encoded[i]
    argv[count] = NULL
    try:
        with nogil:
            status = loadgen_main(count, argv)
    finally:
        PyMem_Free(argv)
    return status
