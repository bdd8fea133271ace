from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from congreve.base.cursor cimport store_i32

cdef struct Host:
    uint8_t address[16]
    int32_t length          # 4 or 16
    int32_t port


cdef inline bint is_v6(const Host *host) noexcept nogil:
    return host.length == 16


cdef inline uint8_t *put_host(uint8_t *at, const Host *host) noexcept nogil:
    memcpy(at, host.address, host.length)
    store_i32(at + host.length, host.port)
    return at + host.length + 4


# ("10.0.0.7", 10911) as a Host; RecordError if the first is not an address.
cdef int fill_host(Host *host, tuple pair) except -1
# The reverse, of a record's 8 or 20 bytes.
cdef tuple to_host(const uint8_t *at, int32_t length)
# An offset message id in upper-case hex, at most MESSAGE_ID_MAX digits; returns where it ends.
cdef enum:
    MESSAGE_ID_MAX = 56
cdef uint8_t *put_message_id(uint8_t *at, const Host *host, int64_t physical_offset) noexcept nogil
# The two parts of an id, for callers that write many ids of one host.
cdef uint8_t *put_id_host(uint8_t *at, const Host *host) noexcept nogil
cdef uint8_t *put_id_offset(uint8_t *at, int64_t physical_offset) noexcept nogil
# "10.0.0.7:10911" or "[2001:db8::7]:10911" of a record's 8 or 20 bytes; returns its length.
cdef enum:
    HOST_TEXT_MAX = 64
cdef int32_t host_text(uint8_t *at, const uint8_t *host, int32_t length) noexcept nogil
