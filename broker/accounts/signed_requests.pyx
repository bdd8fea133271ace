"""The check of signatures, of two requests at a time. (RocketMQ: AclUtils, AclSigner.)"""

from libc.string cimport memcpy

from congreve.remoting.signatures.hmac_sha1 cimport Sha1Context


cdef inline uint8_t *put(uint8_t *out, Slice value, bint has_slack) noexcept nogil:
    """Copy a value, with `has_slack` in steps, which is quicker for the short ones.

    A step reads and writes up to COPY_SLACK - 1 bytes beyond the value.
    """
    cdef int32_t done = 0
    if has_slack:
        while done < value.length:
            memcpy(out + done, value.data + done, COPY_SLACK)
            done += COPY_SLACK
    else:
        memcpy(out, value.data, value.length)
    return out + value.length


cdef bint add_request(Sha1 sha1, SignedRequests *requests, int32_t place, const HmacKey *key,
                      const Header *header, Slice body,
                      const SignedFields *signed) noexcept nogil:
    cdef SignedRequest *request = &requests.requests[requests.count]
    cdef Slice signature = header.fields[signed.signature].value
    # A value is in the frame, before these bytes of its body, or in the decoder's scratch, which
    # has as many after its end.
    cdef bint has_slack = body.length >= COPY_SLACK
    cdef uint8_t *out = request.text
    cdef int64_t length = body.length
    cdef int32_t i
    if signature.length != SIGNATURE_SIZE:
        return False
    for i in range(header.count):
        length += header.fields[i].value.length
    if length - SIGNATURE_SIZE > TEXT_MAX:
        return is_signed(sha1, key, header, body, signed)
    for i in range(header.count):
        if signed.places[i] != signed.signature:
            out = put(out, header.fields[signed.places[i]].value, has_slack)
    out = put(out, body, False)
    memcpy(request.signature, signature.data, SIGNATURE_SIZE)
    request.signed.key = key
    request.signed.text = request.text
    request.signed.length = <int32_t> (out - request.text)
    request.place = place
    requests.count += 1
    return True


cdef bint is_signed(Sha1 sha1, const HmacKey *key, const Header *header, Slice body,
                    const SignedFields *signed) noexcept nogil:
    """Whether the signature is right, without a copy of the text."""
    cdef uint8_t[SIGNATURE_SIZE] expected
    cdef Sha1Context context
    cdef Slice value
    cdef int32_t i
    sha1.begin(key, &context)
    for i in range(header.count):
        if signed.places[i] != signed.signature:
            value = header.fields[signed.places[i]].value
            sha1.put(&context, value.data, value.length)
    sha1.put(&context, body.data, body.length)
    sha1.end(key, &context, expected)
    return is_same(expected, header.fields[signed.signature].value.data)


cdef int32_t first_wrong(Sha1 sha1, SignedRequests *requests) noexcept nogil:
    cdef SignedRequest *one = &requests.requests[0]
    cdef SignedRequest *other = &requests.requests[1]
    cdef uint8_t[UNVERIFIED_MAX][SIGNATURE_SIZE] expected
    cdef int32_t count = requests.count
    requests.count = 0
    if count == UNVERIFIED_MAX:
        sha1.sign_two(&one.signed, expected[0], &other.signed, expected[1])
    elif count:
        sha1.sign(&one.signed, expected[0])
    if count and not is_same(expected[0], one.signature):
        return one.place
    if count == UNVERIFIED_MAX and not is_same(expected[1], other.signature):
        return other.place
    return -1


cdef bint is_same(const uint8_t *expected, const uint8_t *signature) noexcept nogil:
    """Compare in a time that does not depend on the bytes."""
    cdef uint8_t wrong = 0
    cdef int32_t i
    for i in range(SIGNATURE_SIZE):
        wrong |= expected[i] ^ signature[i]
    return wrong == 0
