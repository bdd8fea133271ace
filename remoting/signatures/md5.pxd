from libc.stdint cimport uint8_t

cdef enum:
    MD5_HEX_SIZE = 32

ctypedef int (*Md5Init)(void *context) noexcept nogil
ctypedef int (*Md5Update)(void *context, const void *data, size_t length) noexcept nogil
ctypedef int (*Md5Final)(uint8_t *digest, void *context) noexcept nogil


cdef class Md5:
    cdef Md5Init init
    cdef Md5Update update
    cdef Md5Final final

    # Writes the digest in upper-case hex; returns where it ends.
    cdef uint8_t *put_hex(self, uint8_t *out, const uint8_t *data,
                          Py_ssize_t length) noexcept nogil
