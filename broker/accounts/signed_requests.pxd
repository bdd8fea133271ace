from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.base.slices cimport COPY_SLACK, Slice
from congreve.remoting.signatures.hmac_sha1 cimport (
    SIGNATURE_SIZE,
    TEXT_PADDING,
    HmacKey,
    Sha1,
    SignedText,
)
from congreve.remoting.wire.frame cimport Header
from congreve.remoting.wire.signed_fields cimport SignedFields

# Requests whose signatures are not verified yet: two signatures take little longer than one.

cdef enum:
    TEXT_MAX = 8192         # bytes of a request's signed text that are kept here
    UNVERIFIED_MAX = 2

cdef struct SignedRequest:
    SignedText signed
    int32_t place           # which of the caller's requests this is
    uint8_t[SIGNATURE_SIZE] signature
    uint8_t[TEXT_MAX + COPY_SLACK + TEXT_PADDING] text

cdef struct SignedRequests:
    int32_t count
    SignedRequest requests[UNVERIFIED_MAX]


# Whether the signature of a request is right, as far as it is known yet. A request with a short
# text is added, and this returns True; `requests` must have room for it. The key must stay valid.
cdef bint add_request(Sha1 sha1, SignedRequests *requests, int32_t place, const HmacKey *key,
                      const Header *header, Slice body, const SignedFields *signed) noexcept nogil
# Verifies and empties `requests`: the place of the first one with a wrong signature, or -1.
cdef int32_t first_wrong(Sha1 sha1, SignedRequests *requests) noexcept nogil
