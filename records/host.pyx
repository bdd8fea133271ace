"""Hosts in records, and message ids built from a host and an offset."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy, strlen
from cpython.bytes cimport PyBytes_AS_STRING

from congreve.base.cursor cimport load_i32, load_i64, store_i64

import socket

from congreve.records.errors import RecordError

cdef extern from "<arpa/inet.h>" nogil:
    int AF_INET6
    const char *inet_ntop(int family, const void *address, char *at, int size)


cdef int fill_host(Host *host, tuple pair) except -1:
    cdef bytes packed
    name, host.port = pair
    try:
        packed = socket.inet_pton(socket.AF_INET6 if ":" in name else socket.AF_INET, name)
    except OSError as error:
        raise RecordError(f"{name!r} is not an IP address: resolve names first") from error
    host.length = <int32_t> len(packed)
    memcpy(host.address, PyBytes_AS_STRING(packed), host.length)
    return 0


cdef tuple to_host(const uint8_t *at, int32_t length):
    cdef int32_t address = length - 4
    cdef int32_t port = load_i32(at + address)
    if address == 4:
        return f"{at[0]}.{at[1]}.{at[2]}.{at[3]}", port
    return socket.inet_ntop(socket.AF_INET6, at[:address]), port


cdef int32_t host_text(uint8_t *at, const uint8_t *host, int32_t length) noexcept nogil:
    cdef int32_t port = load_i32(host + length - 4)
    cdef char *text = <char *> at
    cdef int32_t end
    if length == 8:
        return snprintf(text, HOST_TEXT_MAX, "%d.%d.%d.%d:%d", host[0], host[1], host[2], host[3],
                        port)
    text[0] = c"["
    inet_ntop(AF_INET6, host, text + 1, HOST_TEXT_MAX - 1)
    end = <int32_t> strlen(text)
    return end + snprintf(text + end, HOST_TEXT_MAX - end, "]:%d", port)


cdef inline uint64_t hex_of(uint32_t value) noexcept nogil:
    """The eight hex digits of a value, the first in the highest byte."""
    cdef uint64_t x = value
    cdef uint64_t letters
    # One digit per byte, the last digit of the value in the lowest byte.
    x = (x | x << 16) & 0x0000FFFF0000FFFFU
    x = (x | x << 8) & 0x00FF00FF00FF00FFU
    x = (x | x << 4) & 0x0F0F0F0F0F0F0F0FU
    letters = (x + 0x0606060606060606U) >> 4 & 0x0101010101010101U
    return x + 0x3030303030303030U + letters * 7


cdef uint8_t *put_id_host(uint8_t *at, const Host *host) noexcept nogil:
    cdef uint8_t raw[20]
    cdef int32_t length = <int32_t> (put_host(raw, host) - raw)
    cdef int32_t i
    for i in range(0, length, 4):
        store_i64(at + 2 * i, <int64_t> hex_of(<uint32_t> load_i32(raw + i)))
    return at + 2 * length


cdef uint8_t *put_id_offset(uint8_t *at, int64_t physical_offset) noexcept nogil:
    store_i64(at, <int64_t> hex_of(<uint32_t> (physical_offset >> 32)))
    store_i64(at + 8, <int64_t> hex_of(<uint32_t> physical_offset))
    return at + 16


cdef uint8_t *put_message_id(uint8_t *at, const Host *host, int64_t physical_offset) noexcept nogil:
    return put_id_offset(put_id_host(at, host), physical_offset)


def offset_message_id(host, int64_t physical_offset):
    """The offset message id: 32 (IPv4) or 56 (IPv6) upper-case hex digits of host and offset.

    They are the address, the port (i32) and the physical offset (i64). Raises RecordError if the
    host is not an address. (RocketMQ: MessageDecoder.createMessageId.)
    """
    cdef Host packed
    cdef uint8_t text[MESSAGE_ID_MAX]
    fill_host(&packed, host)
    return text[:put_message_id(text, &packed, physical_offset) - text].decode("ascii")


def parse_offset_message_id(str message_id):
    """Host and physical offset of an offset message id. Raises RecordError for another text."""
    cdef bytes raw
    if len(message_id) not in (32, 56):
        raise RecordError(f"{message_id!r} is not an offset message id: use 32 or 56 hex digits")
    try:
        raw = bytes.fromhex(message_id)
    except ValueError as error:
        raise RecordError(f"{message_id!r} is not an offset message id: not hexadecimal") from error
    if len(raw) * 2 != len(message_id):
        raise RecordError(f"{message_id!r} is not an offset message id: not all hexadecimal")
    cdef const uint8_t *at = <const uint8_t *> PyBytes_AS_STRING(raw)
    cdef int32_t host_length = <int32_t> len(raw) - 8
    return to_host(at, host_length), load_i64(at + host_length)
