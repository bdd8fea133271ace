from libc.stdint cimport int32_t, uint8_t


# Bytes that lie somewhere else.
cdef struct Slice:
    const uint8_t *data
    int32_t length

# The bytes of an object that the caller keeps.
cdef inline Slice slice_of(bytes text) noexcept:
    cdef Slice found
    found.data = text
    found.length = <int32_t> len(text)
    return found

# Room for unescaped JSON text. decode_header() never writes more than the header's length into it.
cdef struct Scratch:
    uint8_t *data
    Py_ssize_t capacity
    Py_ssize_t used
