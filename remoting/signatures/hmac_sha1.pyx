"""HmacSHA1 for code without the GIL, by the OpenSSL that Python's hashlib has loaded."""

cimport cython
from libc.stdint cimport uint32_t, uintptr_t
from libc.string cimport memcpy

import base64
import hashlib
import hmac

from congreve.remoting.signatures.openssl_functions import addresses

cdef enum:
    BLOCK = 64

cdef const uint8_t *BASE64 = (
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
)


@cython.final
cdef class Sha1:
    """The functions of SHA-1; load_sha1() makes one (RocketMQ: AclSigner)."""

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
        for i in range(BLOCK):
            padded[i] ^= 0x36 ^ 0x5C
        self.init(&key.outer)
        self.update(&key.outer, padded, BLOCK)

    cdef void end(self, const HmacKey *key, Sha1Context *context,
                  uint8_t *signature) noexcept nogil:
        cdef uint8_t[SHA1_SIZE + 1] digest
        self.end_raw(key, context, digest)
        digest[SHA1_SIZE] = 0
        put_base64(digest, signature)

    cdef void end_raw(self, const HmacKey *key, Sha1Context *context,
                      uint8_t *digest) noexcept nogil:
        self.final(digest, context)
        context[0] = key.outer
        self.update(context, digest, SHA1_SIZE)
        self.final(digest, context)


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


def load_sha1():
    """The SHA-1 of Python's OpenSSL; None if this Python hides it, or it works in another way."""
    cdef Sha1 sha1 = Sha1()
    found = addresses("SHA1_Init", "SHA1_Update", "SHA1_Final")
    if found is None:
        return None
    init, update, final = found
    sha1.init = <Sha1Init> <uintptr_t> init
    sha1.update = <Sha1Update> <uintptr_t> update
    sha1.final = <Sha1Final> <uintptr_t> final
    for length in (0, 1, 63, 64, 65, 1000):
        text = bytes(range(256)) * 4
        secret, content = text[:length], text[length:]
        digest = hmac.digest(secret, content, hashlib.sha1)
        if sha1.hmac(secret, content) != base64.b64encode(digest).decode():
            return None
    return sha1
