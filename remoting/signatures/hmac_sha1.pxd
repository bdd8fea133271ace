from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

cdef enum:
    SHA1_SIZE = 20
    SHA1_WORDS = 5
    SIGNATURE_SIZE = 28         # of the digest in base64
    CONTEXT_WORDS = 16          # OpenSSL's SHA_CTX has 96 bytes; load_sha1() tests the copies of it
    TEXT_PADDING = 72           # bytes that SHA-1 may need after a text

ctypedef int (*Sha1Init)(void *context) noexcept nogil
ctypedef int (*Sha1Update)(void *context, const void *data, size_t length) noexcept nogil
ctypedef int (*Sha1Final)(uint8_t *digest, void *context) noexcept nogil

cdef struct Sha1Context:
    uint64_t words[CONTEXT_WORDS]

# A secret: what the two hashes of an HMAC have read of it, for OpenSSL and for instructions.
cdef struct HmacKey:
    Sha1Context inner
    Sha1Context outer
    uint32_t inner_state[SHA1_WORDS]
    uint32_t outer_state[SHA1_WORDS]

# What a signature covers.
cdef struct SignedText:
    const HmacKey *key
    uint8_t *text               # with TEXT_PADDING bytes of room after it
    int32_t length


cdef class Sha1:
    cdef Sha1Init init
    cdef Sha1Update update
    cdef Sha1Final final
    cdef readonly bint has_instructions
    """Whether it uses the processor's instructions for texts that lie in memory as a whole."""

    cdef void set_key(self, HmacKey *key, const uint8_t *secret, Py_ssize_t length) noexcept nogil
    # An HMAC of pieces: begin(), put() for each piece, end(), which writes its base64.
    cdef inline void begin(self, const HmacKey *key, Sha1Context *context) noexcept nogil:
        context[0] = key.inner

    cdef inline void put(self, Sha1Context *context, const void *data,
                         Py_ssize_t length) noexcept nogil:
        self.update(context, data, length)

    cdef void end(self, const HmacKey *key, Sha1Context *context,
                  uint8_t *signature) noexcept nogil
    # The HMACs of one or two whole texts in base64, SIGNATURE_SIZE bytes each.
    cdef void sign(self, SignedText *text, uint8_t *signature) noexcept nogil
    cdef void sign_two(self, SignedText *one, uint8_t *signature, SignedText *other,
                       uint8_t *other_signature) noexcept nogil
    cdef void set_state(self, uint32_t *state, const uint8_t *block) noexcept nogil
