"""A look at the members of a batch before it is appended."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memchr, memcmp, memset, strlen
from posix.strings cimport strncasecmp

from congreve.records.layout cimport PROPERTY_SEPARATOR
from congreve.records.record cimport Message, read_batch_element


cdef inline bint begins(const uint8_t *at, const uint8_t *end, const char *text) noexcept nogil:
    # strlen of a literal is folded by the compiler.
    return end - at > <Py_ssize_t> strlen(text) and memcmp(at, text, strlen(text)) == 0


cdef inline bint is_true(const uint8_t *at, const uint8_t *end) noexcept nogil:
    return (end - at >= 4 and strncasecmp(<const char *> at, b"true", 4) == 0
            and (end - at == 4 or at[4] == PROPERTY_SEPARATOR))


# `waits` becomes what the member says of WAIT, the default where it says nothing.
cdef bint is_ordinary_member(const uint8_t *at, int32_t length, bint *waits) noexcept nogil:
    cdef const uint8_t *end = at + length
    waits[0] = True
    while at < end:
        if at[0] == c"D" and begins(at, end, b"DELAY\x01"):
            return False
        if at[0] == c"T" and (begins(at, end, b"TRAN_MSG\x01") or begins(at, end, b"TIMER_")):
            return False
        if at[0] == c"W" and begins(at, end, b"WAIT\x01"):
            waits[0] = is_true(at + 5, end)
        at = <const uint8_t *> memchr(at, PROPERTY_SEPARATOR, end - at)
        if at == NULL:
            return True
        at += 1
    return True


cdef bint is_ordinary_batch(const uint8_t *body, int32_t length) noexcept nogil:
    cdef Message member
    cdef int32_t at = 0
    cdef int32_t size
    cdef bint waits
    cdef bint first_waits = True
    memset(&member, 0, sizeof(Message))
    while at < length:
        size = read_batch_element(body + at, length - at, &member)
        if size == 0:
            return True
        if not is_ordinary_member(member.properties, member.properties_length, &waits):
            return False
        if at == 0:
            first_waits = waits
        elif waits != first_waits:
            return False
        at += size
    return True


def is_ordinary(body):
    cdef Py_buffer view
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        return is_ordinary_batch(<const uint8_t *> view.buf, <int32_t> view.len)
    finally:
        PyBuffer_Release(&view)


def member_properties(body):
    cdef Py_buffer view
    cdef Message member
    cdef Py_ssize_t at = 0
    cdef int32_t size
    found = []
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        while at < view.len:
            size = read_batch_element(<const uint8_t *> view.buf + at, <int32_t> (view.len - at),
                                      &member)
            if size == 0:
                break
            found.append(member.properties[:member.properties_length])
            at += size
        return found
    finally:
        PyBuffer_Release(&view)
