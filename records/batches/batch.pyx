"""Bodies of batches, element by element (RocketMQ: MessageDecoder.encodeMessage, MessageBatch)."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.list cimport PyList_GET_ITEM
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from congreve.base.cursor cimport load_i32
from congreve.records cimport layout
from congreve.records.message.properties cimport UNIQ_KEY, put_name

from congreve.records.errors import RecordError

cdef enum:
    COUNTER_LENGTH = 4          # the hex digits of an id that count
    ID_NAME_LENGTH = 9          # UNIQ_KEY and the separator after it
    ID_PROPERTY_LENGTH = ID_NAME_LENGTH + ID_LENGTH + 1


def batch_element(body, bytes properties not None, int32_t flag):
    """One element of a batch's body (RocketMQ: MessageDecoder.encodeMessage).

    `body` is any buffer, `properties` are encoded. Raises TypeError if the body is not a buffer.
    """
    cdef Py_buffer view
    cdef int32_t properties_length = <int32_t> len(properties)
    cdef bytes element
    cdef uint8_t *out
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        element = PyBytes_FromStringAndSize(
            NULL, layout.BATCH_ELEMENT_FIXED + view.len + properties_length
        )
        out = <uint8_t *> PyBytes_AS_STRING(element)
        out = put_body(out, <const uint8_t *> view.buf, <int32_t> view.len, flag, properties_length)
        memcpy(out, PyBytes_AS_STRING(properties), properties_length)
        return element
    finally:
        PyBuffer_Release(&view)


@cython.final
cdef class BatchEncoder:
    """Encodes bodies with the same properties as batches of at most `size_max` bytes.

    Each message gets an id of 32 hex digits: `id_head` (28 digits), then a counter that increases
    by one with each message. `properties` are its other properties, encoded.
    """

    cdef bytes properties
    cdef int32_t overhead
    cdef readonly int32_t size_max
    """Most bytes of a batch."""
    cdef uint8_t[ID_PROPERTY_LENGTH] id_property
    cdef uint8_t *id            # its place in them

    def __init__(self, bytes properties not None, int32_t size_max):
        self.properties = properties
        self.size_max = size_max
        self.overhead = (
            layout.BATCH_ELEMENT_FIXED + ID_PROPERTY_LENGTH + <int32_t> len(properties)
        )
        self.id = put_name(self.id_property, UNIQ_KEY)
        self.id_property[ID_PROPERTY_LENGTH - 1] = layout.PROPERTY_SEPARATOR

    cdef uint8_t *put(self, uint8_t *out, const uint8_t *body, int32_t length,
                      int32_t counter) noexcept:
        cdef uint8_t *digits = self.id + ID_LENGTH - COUNTER_LENGTH
        cdef Py_ssize_t properties_length = len(self.properties)
        put_hex(digits, counter)
        out = put_body(out, body, length, 0, ID_PROPERTY_LENGTH + <int32_t> properties_length)
        memcpy(out, self.id_property, ID_PROPERTY_LENGTH)
        out += ID_PROPERTY_LENGTH
        memcpy(out, PyBytes_AS_STRING(self.properties), properties_length)
        return out + properties_length

    cdef Py_ssize_t size_with(self, Py_ssize_t used, Py_ssize_t length, Py_ssize_t index) except -1:
        """Bytes of the batch with one body more; 0: it does not fit."""
        if length == 0 or self.overhead + length > self.size_max:
            raise RecordError(
                f"body number {index} of {length} bytes: at least 1 and at most "
                f"{self.size_max - self.overhead} are allowed"
            )
        used += self.overhead + length
        return 0 if used > self.size_max else used

    def take_bodies(self, list bodies not None, Py_ssize_t start, str id_head not None,
                    int32_t counter):
        """Encode a batch of the bodies from `start` on.

        Returns the batch, the ids of its messages joined by commas, and the index after its last
        body. Raises RecordError for an empty body and for one that does not fit into a batch,
        TypeError for one that is not a buffer.
        """
        cdef bytes out = PyBytes_FromStringAndSize(NULL, self.size_max)
        cdef uint8_t *begin = <uint8_t *> PyBytes_AS_STRING(out)
        cdef uint8_t *at = begin
        cdef Py_ssize_t index = start
        cdef Py_buffer view
        self.set_id_head(id_head)
        while index < len(bodies):
            PyObject_GetBuffer(<object> PyList_GET_ITEM(bodies, index), &view, PyBUF_SIMPLE)
            try:
                if not self.size_with(at - begin, view.len, index):
                    break
                at = self.put(at, <const uint8_t *> view.buf, <int32_t> view.len, counter)
            finally:
                PyBuffer_Release(&view)
            counter += 1
            index += 1
        out = out[:at - begin]
        return out, self.ids_of(out, index - start), index

    def take_column(self, data, const int64_t[::1] offsets not None, Py_ssize_t start,
                    str id_head not None, int32_t counter):
        """take_bodies() for a column: body i is ``data[offsets[i]:offsets[i + 1]]``.

        `offsets` is a contiguous int64 array of shape (n + 1,). Raises RecordError also for a body
        outside `data`.
        """
        cdef bytes out = PyBytes_FromStringAndSize(NULL, self.size_max)
        cdef uint8_t *begin = <uint8_t *> PyBytes_AS_STRING(out)
        cdef uint8_t *at = begin
        cdef Py_ssize_t index = start
        cdef int64_t length
        cdef Py_buffer view
        self.set_id_head(id_head)
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            while index + 1 < len(offsets):
                length = offsets[index + 1] - offsets[index]
                if offsets[index] < 0 or length < 0 or offsets[index + 1] > view.len:
                    raise RecordError(f"body number {index} is outside its column's data")
                if not self.size_with(at - begin, length, index):
                    break
                at = self.put(
                    at, <const uint8_t *> view.buf + offsets[index], <int32_t> length, counter
                )
                counter += 1
                index += 1
        finally:
            PyBuffer_Release(&view)
        out = out[:at - begin]
        return out, self.ids_of(out, index - start), index

    cdef int set_id_head(self, str id_head) except -1:
        cdef bytes head = id_head.encode()
        if len(head) != ID_LENGTH - COUNTER_LENGTH:
            raise ValueError(f"an id head of {len(head)} digits: use {ID_LENGTH - COUNTER_LENGTH}")
        memcpy(self.id, PyBytes_AS_STRING(head), len(head))
        return 0

    cdef str ids_of(self, bytes batch, Py_ssize_t count):
        """The ids of a batch's messages, with commas between."""
        cdef const uint8_t *at = <const uint8_t *> PyBytes_AS_STRING(batch)
        cdef bytes ids = PyBytes_FromStringAndSize(NULL, count * (ID_LENGTH + 1))
        cdef uint8_t *out = <uint8_t *> PyBytes_AS_STRING(ids)
        for _ in range(count):
            memcpy(out, at + load_i32(at) - len(self.properties) - ID_LENGTH - 1, ID_LENGTH)
            out[ID_LENGTH] = c","
            out += ID_LENGTH + 1
            at += load_i32(at)
        return ids[:max(0, len(ids) - 1)].decode()
