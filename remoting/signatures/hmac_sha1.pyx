"""HmacSHA1 for code without the GIL: by the OpenSSL that Python's hashlib has loaded, and by the
processor's instructions, which then take two texts at a time.
"""

cimport cython
from libc.stdint cimport uintptr_t
from libc.string cimport memcpy, memset

import base64
import ctypes
import hashlib
import hmac

cdef extern from "hmac_sha1_blocks.h" nogil:
    bint sha1_has_instructions()
    void sha1_one(uint32_t *state, const uint8_t *text, size_t blocks)
    void sha1_two(uint32_t *state, const uint8_t *text, uint32_t *other_state,
                  const uint8_t *other, size_t blocks)


cdef enum:
    BLOCK = 64
    LENGTH_SIZE = 8             # the bytes that end a padded text

cdef const uint8_t *BASE64 = (
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
)


cdef uint32_t[SHA1_WORDS] INITIAL_STATE = [
    0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0
]


cdef inline void put_u32(uint8_t *out, uint32_t number) noexcept nogil:
    out[0] = number >> 24
    out[1] = number >> 16 & 0xFF
    out[2] = number >> 8 & 0xFF
    out[3] = number & 0xFF


cdef size_t pad(uint8_t *text, Py_ssize_t length) noexcept nogil:
    """Pad a text that follows one block; the number of its blocks."""
    cdef size_t blocks = (length + LENGTH_SIZE) // BLOCK + 1
    cdef uint8_t *end = text + blocks * BLOCK
    cdef uint64_t bits = 8 * <uint64_t> (BLOCK + length)
    text[length] = 0x80
    memset(text + length + 1, 0, end - text - length - 1)
    put_u32(end - 8, <uint32_t> (bits >> 32))
    put_u32(end - 4, <uint32_t> bits)
    return blocks


cdef void put_digest(const uint32_t *state, uint8_t *out) noexcept nogil:
    cdef int i
    for i in range(SHA1_WORDS):
        put_u32(out + 4 * i, state[i])


@cython.final
cdef class Sha1:
    """The functions of SHA-1; load_sha1() makes one (RocketMQ: AclSigner)."""

    def hmac_two(self, bytes secret not None, bytes content not None, bytes other not None):
        """HmacSHA1 of two contents in base64, by one call."""
        cdef HmacKey key
        cdef SignedText[2] texts
        cdef uint8_t[2 * SIGNATURE_SIZE] signatures
        copies = [bytearray(content) + bytes(TEXT_PADDING), bytearray(other) + bytes(TEXT_PADDING)]
        self.set_key(&key, secret, len(secret))
        for i, copy in enumerate(copies):
            texts[<int> i].key = &key
            texts[<int> i].text = copy
            texts[<int> i].length = <int32_t> (len(copy) - TEXT_PADDING)
        self.sign_two(&texts[0], signatures, &texts[1], signatures + SIGNATURE_SIZE)
        both = signatures[:2 * SIGNATURE_SIZE].decode("ascii")
        return both[:SIGNATURE_SIZE], both[SIGNATURE_SIZE:]

    def hmac(self, bytes secret not None, bytes content not None):
        """HmacSHA1 in base64."""
        cdef HmacKey key
        cdef Sha1Context context
        cdef uint8_t[SIGNATURE_SIZE] signature
        self.set_key(&key, secret, len(secret))
        self.begin(&key, &context)
        self.put(&context, <const uint8_t *> content, len(content))
        self.end(&key, &context, signature)
        return signature[:SIGNATURE_SIZE].decode("ascii")

    cdef void set_key(self, HmacKey *key, const uint8_t *secret, Py_ssize_t length) noexcept nogil:
        cdef uint8_t[BLOCK] padded
        cdef Sha1Context context
        cdef int i
        for i in range(BLOCK):
            padded[i] = 0
        if length > BLOCK:
            self.init(&context)
            self.update(&context, secret, length)
            self.final(padded, &context)
        else:
            memcpy(padded, secret, length)
        for i in range(BLOCK):
            padded[i] ^= 0x36
        self.init(&key.inner)
        self.update(&key.inner, padded, BLOCK)
        self.set_state(key.inner_state, padded)
        for i in range(BLOCK):
            padded[i] ^= 0x36 ^ 0x5C
        self.init(&key.outer)
        self.update(&key.outer, padded, BLOCK)
        self.set_state(key.outer_state, padded)

    cdef void set_state(self, uint32_t *state, const uint8_t *block) noexcept nogil:
        memcpy(state, INITIAL_STATE, sizeof(INITIAL_STATE))
        if self.has_instructions:
            sha1_one(state, block, 1)

    cdef void end(self, const HmacKey *key, Sha1Context *context,
                  uint8_t *signature) noexcept nogil:
        cdef uint8_t[SHA1_SIZE + 1] digest
        self.final(digest, context)
        context[0] = key.outer
        self.update(context, digest, SHA1_SIZE)
        self.final(digest, context)
        digest[SHA1_SIZE] = 0
        put_base64(digest, signature)

    cdef void sign(self, SignedText *text, uint8_t *signature) noexcept nogil:
        cdef Sha1Context context
        cdef uint32_t[SHA1_WORDS] state
        if self.has_instructions:
            memcpy(state, text.key.inner_state, sizeof(state))
            sha1_one(state, text.text, pad(text.text, text.length))
            end_one(text.key, state, signature)
        else:
            self.begin(text.key, &context)
            self.put(&context, text.text, text.length)
            self.end(text.key, &context, signature)

    cdef void sign_two(self, SignedText *one, uint8_t *signature, SignedText *other,
                       uint8_t *other_signature) noexcept nogil:
        cdef uint32_t[2][SHA1_WORDS] states
        cdef size_t blocks, other_blocks, common
        if not self.has_instructions:
            self.sign(one, signature)
            self.sign(other, other_signature)
            return
        blocks, other_blocks = pad(one.text, one.length), pad(other.text, other.length)
        common = min(blocks, other_blocks)
        memcpy(states[0], one.key.inner_state, sizeof(states[0]))
        memcpy(states[1], other.key.inner_state, sizeof(states[1]))
        sha1_two(states[0], one.text, states[1], other.text, common)
        sha1_one(states[0], one.text + common * BLOCK, blocks - common)
        sha1_one(states[1], other.text + common * BLOCK, other_blocks - common)
        end_two(one.key, states[0], signature, other.key, states[1], other_signature)


# The outer hash of an HMAC, with the state of the inner one.

cdef void end_one(const HmacKey *key, const uint32_t *inner, uint8_t *signature) noexcept nogil:
    cdef uint8_t[BLOCK] block
    cdef uint32_t[SHA1_WORDS] state
    put_digest(inner, block)
    memcpy(state, key.outer_state, sizeof(state))
    sha1_one(state, block, pad(block, SHA1_SIZE))
    put_signature(state, signature)


cdef void end_two(const HmacKey *key, const uint32_t *inner, uint8_t *signature,
                  const HmacKey *other_key, const uint32_t *other_inner,
                  uint8_t *other_signature) noexcept nogil:
    cdef uint8_t[2][BLOCK] blocks
    cdef uint32_t[2][SHA1_WORDS] states
    put_digest(inner, blocks[0])
    put_digest(other_inner, blocks[1])
    memcpy(states[0], key.outer_state, sizeof(states[0]))
    memcpy(states[1], other_key.outer_state, sizeof(states[1]))
    pad(blocks[0], SHA1_SIZE)
    pad(blocks[1], SHA1_SIZE)
    sha1_two(states[0], blocks[0], states[1], blocks[1], 1)
    put_signature(states[0], signature)
    put_signature(states[1], other_signature)


cdef void put_signature(const uint32_t *state, uint8_t *signature) noexcept nogil:
    cdef uint8_t[SHA1_SIZE + 1] digest
    put_digest(state, digest)
    digest[SHA1_SIZE] = 0
    put_base64(digest, signature)


cdef void put_base64(const uint8_t *digest, uint8_t *out) noexcept nogil:
    """The 21 bytes, of which the last does not belong to the digest, as 28 characters."""
    cdef uint32_t three
    cdef int i
    for i in range(7):
        three = digest[3 * i] << 16 | digest[3 * i + 1] << 8 | digest[3 * i + 2]
        out[4 * i] = BASE64[three >> 18]
        out[4 * i + 1] = BASE64[three >> 12 & 63]
        out[4 * i + 2] = BASE64[three >> 6 & 63]
        out[4 * i + 3] = BASE64[three & 63]
    out[27] = c"="


def load_sha1(bint instructions=True):
    """The SHA-1 of Python's OpenSSL, with `instructions` also that of the processor if it has them;
    None if this Python hides OpenSSL's, or one works in another way.
    """
    cdef Sha1 sha1 = Sha1()
    try:
        import _hashlib
        library = ctypes.CDLL(_hashlib.__file__)
        init, update, final = (
            ctypes.cast(function, ctypes.c_void_p).value
            for function in (library.SHA1_Init, library.SHA1_Update, library.SHA1_Final)
        )
    except (ImportError, AttributeError, OSError):
        return None
    sha1.init = <Sha1Init> <uintptr_t> init
    sha1.update = <Sha1Update> <uintptr_t> update
    sha1.final = <Sha1Final> <uintptr_t> final
    sha1.has_instructions = instructions and sha1_has_instructions()
    for length in (0, 1, 63, 64, 65, 1000):
        text = bytes(range(256)) * 4
        secret, content = text[:length], text[length:]
        digest = hmac.digest(secret, content, hashlib.sha1)
        expected = base64.b64encode(digest).decode()
        if {sha1.hmac(secret, content), *sha1.hmac_two(secret, content, content)} != {expected}:
            return None
    return sha1
