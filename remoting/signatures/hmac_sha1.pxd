from libc.stdint cimport uint8_t, uint64_t

cdef enum:
    SHA1_SIZE = 20
    SIGNATURE_SIZE = 28         # of the digest in base64
    CONTEXT_WORDS = 16          # OpenSSL's SHA_CTX has 96 bytes; load_sha1() tests the copies of it

ctypedef int (*Sha1Init)(void *context) noexcept nogil
ctypedef int (*Sha1Update)(void *context, const void *data, size_t length) noexcept nogil
ctypedef int (*Sha1Final)(uint8_t *digest, void *context) noexcept nogil

cdef struct Sha1Context:
    uint64_t words[CONTEXT_WORDS]

# A secret: what the two hashes of an HMAC have read of it.
cdef struct HmacKey:
    Sha1Context inner
    Sha1Context outer


cdef class Sha1:
    cdef Sha1Init init
    cdef Sha1Update update
    cdef Sha1Final final

    cdef void set_key(self, HmacKey *key, const uint8_t *secret, Py_ssize_t length) noexcept nogil
    # An HMAC of pieces: begin(), put() for each piece, then end(), which writes its base64, or
    # end_raw(), which writes its SHA1_SIZE bytes.
    cdef inline void begin(self, const HmacKey *key, Sha1Context *context) noexcept nogil:
        context[0] = key.inner

    cdef inline void put(self, Sha1Context *context, const void *data,
                         Py_ssize_t length) noexcept nogil:
        self.update(context, data, length)

    cdef void end(self, const HmacKey *key, Sha1Context *context,
                  uint8_t *signature) noexcept nogil
    cdef void end_raw(self, const HmacKey *key, Sha1Context *context,
                      uint8_t *digest) noexcept nogil
