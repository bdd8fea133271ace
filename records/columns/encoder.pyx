"""Columns of messages back to stored records, without the GIL and without a Python object each."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF

from congreve.records cimport layout
from congreve.records.host cimport HOST_TEXT_MAX, Host
from congreve.records.record cimport Message, encode, encoded_size, is_legal

from congreve.records.errors import RecordError

cdef extern from "Python.h":
    PyObject *PyBytes_FromStringAndSize(const char *data, Py_ssize_t size) except NULL
    int _PyBytes_Resize(PyObject **data, Py_ssize_t size) except -1

cdef extern from "<arpa/inet.h>" nogil:
    int AF_INET6
    int inet_pton(int family, const char *text, void *address)

cdef enum:
    COMPRESSION = layout.SYS_COMPRESSED | 0x700     # and the bits of its algorithm


# One column of text or bytes, as Arrow has it.
cdef struct Texts:
    const int32_t *offsets
    const uint8_t *data


# The host that a text says; most rows have that of the row before.
cdef struct KnownHost:
    const uint8_t *text
    int32_t length
    Host host


# The columns of a call, row by row.
cdef struct Columns:
    const int32_t *flags
    const int32_t *sys_flags
    const int32_t *reconsume_times
    const int32_t *sizes
    const int64_t *queue_offsets
    const int64_t *physical_offsets
    const int64_t *born_us
    const int64_t *store_us
    const int32_t *property_offsets
    Texts bodies
    Texts names
    Texts values
    Texts born_hosts
    Texts store_hosts
    KnownHost born_host         # of the row before
    KnownHost store_host
    const uint8_t *topic
    int32_t topic_length


@cython.final
cdef class RowEncoder:
    """Encodes rows of one queue as the records that the log had (RocketMQ: MessageExtEncoder).

    A record has the bytes that it had in the log, with two exceptions: a body that a client had
    compressed is plain, and the link of a committed transaction to its half message is 0.
    """

    cdef bytes topic
    cdef int32_t queue_id
    cdef uint8_t *properties

    def __cinit__(self, str topic, int32_t queue_id):
        self.topic = topic.encode()
        self.queue_id = queue_id
        self.properties = <uint8_t *> malloc(layout.PROPERTIES_MAX + 1)
        if self.properties == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.properties)

    def encode(self, const int32_t[::1] flags, const int32_t[::1] sys_flags,
               const int32_t[::1] reconsume_times, const int32_t[::1] sizes,
               const int64_t[::1] queue_offsets, const int64_t[::1] physical_offsets,
               const int64_t[::1] born_us, const int64_t[::1] store_us,
               const int32_t[::1] property_offsets, tuple bodies, tuple names, tuple values,
               tuple born_hosts, tuple store_hosts, int64_t[::1] ends):
        """The records of all rows, one after the other; `ends` gets the place where each ends.

        Numbers are columns of the table with the same number of rows, times in us. A tuple is a
        column of text or bytes: its offsets (int32, one more than rows) and its data. `names` and
        `values` are the pairs of all rows, `property_offsets` has one more than rows. Raises
        RecordError for a row that is not a message.
        """
        cdef Columns columns
        cdef int64_t count = queue_offsets.shape[0]
        cdef int64_t failed
        cdef PyObject *raw
        cdef uint8_t *at
        if count == 0:
            return b""
        columns.topic = <const uint8_t *> PyBytes_AS_STRING(self.topic)
        columns.topic_length = <int32_t> len(self.topic)
        columns.flags = &flags[0]
        columns.sys_flags = &sys_flags[0]
        columns.reconsume_times = &reconsume_times[0]
        columns.sizes = &sizes[0]
        columns.queue_offsets = &queue_offsets[0]
        columns.physical_offsets = &physical_offsets[0]
        columns.born_us = &born_us[0]
        columns.store_us = &store_us[0]
        columns.property_offsets = &property_offsets[0]
        columns.born_host.length = columns.store_host.length = -1
        texts_of(bodies, &columns.bodies)
        texts_of(names, &columns.names)
        texts_of(values, &columns.values)
        texts_of(born_hosts, &columns.born_hosts)
        texts_of(store_hosts, &columns.store_hosts)
        raw = PyBytes_FromStringAndSize(NULL, most_bytes(&columns, count))
        at = <uint8_t *> PyBytes_AS_STRING(<object> raw)
        with nogil:
            failed = self.write(&columns, count, at, &ends[0])
        _PyBytes_Resize(&raw, ends[count - 1] if failed < 0 else 1)
        records = <object> raw
        Py_DECREF(records)
        if failed >= 0:
            raise RecordError(
                f"the message at queue offset {queue_offsets[failed]} cannot be encoded: its "
                "topic, hosts or properties are not those of a message"
            )
        return records

    cdef int64_t write(self, Columns *columns, int64_t count, uint8_t *at,
                       int64_t *ends) noexcept nogil:
        """Write all records and fill `ends`; returns the first row that is not a message, or -1."""
        cdef Message message
        cdef int64_t i, size
        cdef int64_t end = 0
        for i in range(count):
            if not self.read(columns, i, &message):
                return i
            size = encoded_size(&message)
            encode(at + end, &message, size, columns.queue_offsets[i],
                   columns.physical_offsets[i], columns.store_us[i] // 1000)
            end += size
            ends[i] = end
        return -1

    cdef bint read(self, Columns *columns, int64_t i, Message *message) noexcept nogil:
        cdef bint compressed = columns.sys_flags[i] & layout.SYS_COMPRESSED != 0
        message.topic = columns.topic
        message.topic_length = columns.topic_length
        message.body = columns.bodies.data + columns.bodies.offsets[i]
        message.body_length = columns.bodies.offsets[i + 1] - columns.bodies.offsets[i]
        message.queue_id = self.queue_id
        message.flag = columns.flags[i]
        message.sys_flag = columns.sys_flags[i]
        if compressed:
            message.sys_flag &= ~COMPRESSION
        message.reconsume_times = columns.reconsume_times[i]
        message.born_timestamp = columns.born_us[i] // 1000
        message.prepared_offset = 0
        message.properties_more = NULL
        message.properties_more_length = 0
        if not (host_of(&columns.born_hosts, i, &columns.born_host, &message.born_host)
                and host_of(&columns.store_hosts, i, &columns.store_host, &message.store_host)
                and self.read_properties(columns, i, message)):
            return False
        # Some clients end the last property with a separator, which the column does not have.
        if (not compressed and message.properties_length
                and encoded_size(message) + 1 == columns.sizes[i]):
            self.properties[message.properties_length] = layout.PROPERTY_SEPARATOR
            message.properties_length += 1
        return is_legal(message)

    cdef bint read_properties(self, const Columns *columns, int64_t i,
                              Message *message) noexcept nogil:
        cdef int32_t j, name, value
        cdef int32_t first = columns.property_offsets[i]
        cdef uint8_t *at = self.properties
        for j in range(first, columns.property_offsets[i + 1]):
            name = columns.names.offsets[j + 1] - columns.names.offsets[j]
            value = columns.values.offsets[j + 1] - columns.values.offsets[j]
            if at + name + value + 2 > self.properties + layout.PROPERTIES_MAX:
                return False
            if j > first:
                at[0] = layout.PROPERTY_SEPARATOR
                at += 1
            memcpy(at, columns.names.data + columns.names.offsets[j], name)
            at[name] = layout.NAME_VALUE_SEPARATOR
            at += name + 1
            memcpy(at, columns.values.data + columns.values.offsets[j], value)
            at += value
        message.properties = self.properties
        message.properties_length = <int32_t> (at - self.properties)
        return True


cdef int64_t most_bytes(const Columns *columns, int64_t count) noexcept nogil:
    """At least as many bytes as the records of all rows have."""
    cdef int64_t first = columns.property_offsets[0]
    cdef int64_t last = columns.property_offsets[count]
    cdef int64_t of_row = (
        layout.RECORD_FIXED + 2 * (layout.HOST_V6 - layout.HOST_V4) + columns.topic_length
    )
    return (
        count * of_row
        + columns.bodies.offsets[count] - columns.bodies.offsets[0]
        + columns.names.offsets[last] - columns.names.offsets[first]
        + columns.values.offsets[last] - columns.values.offsets[first]
        + 2 * (last - first)    # separators, a last one too
    )


cdef int texts_of(tuple column, Texts *texts) except -1:
    """The caller keeps the column's memory while it uses `texts`."""
    cdef const int32_t[::1] offsets = column[0]
    cdef const uint8_t[::1] data = column[1]
    texts.offsets = &offsets[0]
    texts.data = &data[0] if data.shape[0] else NULL
    return 0


cdef inline bint host_of(const Texts *texts, int64_t i, KnownHost *known,
                         Host *host) noexcept nogil:
    cdef const uint8_t *text = texts.data + texts.offsets[i]
    cdef int32_t length = texts.offsets[i + 1] - texts.offsets[i]
    if length != known.length or memcmp(text, known.text, length) != 0:
        known.length = -1
        if not read_host(texts, i, &known.host):
            return False
        known.text, known.length = text, length
    host[0] = known.host
    return True


# "10.0.0.7:10911" or "[2001:db8::7]:10911", as host_text() writes it; False for another text.
cdef bint read_host(const Texts *texts, int64_t i, Host *host) noexcept nogil:
    cdef const uint8_t *text = texts.data + texts.offsets[i]
    cdef int32_t length = texts.offsets[i + 1] - texts.offsets[i]
    cdef char address[HOST_TEXT_MAX]
    cdef int32_t colon = length - 1
    cdef int32_t j
    while colon > 0 and text[colon] != c":":
        colon -= 1
    if not 0 < colon < HOST_TEXT_MAX:
        return False
    host.port = 0
    for j in range(colon + 1, length):
        if not c"0" <= text[j] <= c"9":
            return False
        host.port = host.port * 10 + text[j] - c"0"
    if text[0] != c"[":
        host.length = 4
        return read_v4(text, colon, host.address)
    memcpy(address, text + 1, colon - 2)
    address[colon - 2] = 0
    host.length = 16
    return inet_pton(AF_INET6, address, host.address) == 1


cdef bint read_v4(const uint8_t *text, int32_t length, uint8_t *address) noexcept nogil:
    cdef int32_t part = 0
    cdef int32_t value = 0
    cdef int32_t j
    for j in range(length):
        if text[j] == c".":
            address[part] = <uint8_t> value
            part += 1
            value = 0
            if part > 3:
                return False
        elif c"0" <= text[j] <= c"9":
            value = value * 10 + text[j] - c"0"
            if value > 255:
                return False
        else:
            return False
    address[part] = <uint8_t> value
    return part == 3
