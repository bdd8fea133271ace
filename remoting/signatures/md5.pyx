"""MD5 for code without the GIL, by the OpenSSL that Python's hashlib has loaded."""

cimport cython
from libc.stdint cimport uint64_t, uintptr_t

import hashlib

from congreve.remoting.signatures.openssl_functions import addresses

cdef enum:
    SIZE = 16
    CONTEXT_WORDS = 16          # OpenSSL's MD5_CTX has 92 bytes

cdef const uint8_t *DIGITS = b"0123456789ABCDEF"


@cython.final
cdef class Md5:
    """The functions of MD5; load_md5() makes one (RocketMQ 5: BinaryUtil.generateMd5)."""

    def hex(self, bytes data not None):
        """The digest in upper-case hex."""
        cdef uint8_t[MD5_HEX_SIZE] out
        self.put_hex(out, data, len(data))
        return out[:MD5_HEX_SIZE].decode("ascii")

    cdef uint8_t *put_hex(self, uint8_t *out, const uint8_t *data,
                          Py_ssize_t length) noexcept nogil:
        cdef uint64_t[CONTEXT_WORDS] context
        cdef uint8_t[SIZE] digest
        cdef int i
        self.init(context)
        self.update(context, data, length)
        self.final(digest, context)
        for i in range(SIZE):
            out[2 * i] = DIGITS[digest[i] >> 4]
            out[2 * i + 1] = DIGITS[digest[i] & 15]
        return out + MD5_HEX_SIZE


def load_md5():
    """The MD5 of Python's OpenSSL; None if this Python hides it, or it works in another way."""
    cdef Md5 md5 = Md5()
    found = addresses("MD5_Init", "MD5_Update", "MD5_Final")
    if found is None:
        return None
    init, update, final = found
    md5.init = <Md5Init> <uintptr_t> init
    md5.update = <Md5Update> <uintptr_t> update
    md5.final = <Md5Final> <uintptr_t> final
    for length in (0, 1, 55, 56, 64, 1000):
        data = (bytes(range(256)) * 4)[:length]
        if md5.hex(data) != hashlib.md5(data, usedforsecurity=False).hexdigest().upper():
            return None
    return md5
