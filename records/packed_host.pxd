from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memcpy

from congreve.base.cursor cimport load_i32
from congreve.records.host cimport Host


# 4 or 16 address bytes, then the port as i32: a host as Python code gives it to compiled code.
cdef inline int unpack_host(Host *host, bytes packed) except -1:
    cdef const uint8_t *raw = packed
    host.length = <int32_t> len(packed) - 4
    memcpy(host.address, raw, host.length)
    host.port = load_i32(raw + host.length)
    return 0
