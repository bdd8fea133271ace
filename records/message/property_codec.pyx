"""The properties of a message: a dict in Python, name and value pairs in a record."""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memchr
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.unicode cimport PyUnicode_DecodeUTF8

from congreve.records.layout cimport NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR

from congreve.records.errors import RecordError


def encode_properties(properties):
    """UTF-8 of name 0x01 value 0x02 ... (RocketMQ: MessageDecoder.messageProperties2String).

    Raises RecordError for a property that contains a separator.
    """
    pieces = []
    for name, value in properties.items():
        if "\x01" in name or "\x02" in name or "\x02" in value:
            raise RecordError(f"property {name!r}={value!r} contains a separator (0x01 or 0x02)")
        pieces.append(f"{name}\x01{value}")
    try:
        return "\x02".join(pieces).encode()
    except UnicodeEncodeError as error:
        raise RecordError(f"a property is not valid Unicode: {error}") from error


cdef dict to_properties(const uint8_t *at, int64_t length):
    cdef const uint8_t *end = at + length
    cdef const uint8_t *stop
    cdef const uint8_t *value
    cdef dict properties = {}
    while at < end:
        stop = <const uint8_t *> memchr(at, PROPERTY_SEPARATOR, end - at)
        if stop == NULL:
            stop = end
        value = <const uint8_t *> memchr(at, NAME_VALUE_SEPARATOR, stop - at)
        if value != NULL and value > at and value + 1 < stop:
            properties[PyUnicode_DecodeUTF8(<const char *> at, value - at, "replace")] = (
                PyUnicode_DecodeUTF8(<const char *> value + 1, stop - value - 1, "replace")
            )
        at = stop + 1
    return properties


def decode_properties(buffer):
    """Decode properties as RocketMQ does: skip incomplete ones; the last of equal names counts."""
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        return to_properties(<const uint8_t *> view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
