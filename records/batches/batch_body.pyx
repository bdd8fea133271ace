"""A look at the members of a batch before it is appended."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memchr, memset, strlen
from posix.strings cimport strncasecmp

from congreve.records.byte_compare cimport starts_with
from congreve.records.layout cimport PROPERTY_SEPARATOR
from congreve.records.message.properties cimport (
    DELAY, TIMER_PREFIX, TRANSACTION_PREPARED, WAIT, is_property, is_set_by_brokers,
)
from congreve.records.record cimport Message, read_batch_element


cdef inline bint is_true(const uint8_t *at, const uint8_t *end) noexcept nogil:
    return (end - at >= 4 and strncasecmp(<const char *> at, b"true", 4) == 0
            and (end - at == 4 or at[4] == PROPERTY_SEPARATOR))


# `waits` becomes the member's WAIT, True when it has none.
cdef bint is_ordinary_member(const uint8_t *at, int32_t length, bint reserves,
                             bint *waits) noexcept nogil:
    cdef const uint8_t *end = at + length
    waits[0] = True
    while at < end:
        if at[0] == c"D" and is_property(at, end, DELAY):
            return False
        if at[0] == c"T" and (
            is_property(at, end, TRANSACTION_PREPARED) or starts_with(at, end - at, TIMER_PREFIX)
        ):
            return False
        if reserves and is_set_by_brokers(at, end):
            return False
        if at[0] == c"W" and is_property(at, end, WAIT):
            waits[0] = is_true(at + strlen(WAIT) + 1, end)
        at = <const uint8_t *> memchr(at, PROPERTY_SEPARATOR, end - at)
        if at == NULL:
            return True
        at += 1
    return True


cdef bint is_ordinary_batch(const uint8_t *body, int32_t length, bint reserves) noexcept nogil:
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
        if not is_ordinary_member(member.properties, member.properties_length, reserves, &waits):
            return False
        if at == 0:
            first_waits = waits
        elif waits != first_waits:
            return False
        at += size
    return True


cdef int32_t member_count(const uint8_t *body, int32_t length) noexcept nogil:
    cdef Message member
    cdef int32_t at = 0
    cdef int32_t size
    cdef int32_t count = 0
    while at < length:
        size = read_batch_element(body + at, length - at, &member)
        if size == 0:
            break
        at += size
        count += 1
    return max(count, 1)


def is_ordinary(body, *, bint reserves=False):
    """Whether no member of the batch asks for a delay or a transaction.

    With `reserves` no member may have a property that only brokers set, either. False means that
    the Python handler must look at its members.
    """
    cdef Py_buffer view
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        return is_ordinary_batch(<const uint8_t *> view.buf, <int32_t> view.len, reserves)
    finally:
        PyBuffer_Release(&view)


def member_properties(body):
    """The property string of each member (RocketMQ: MessageBatch), up to a malformed one."""
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
