from libc.stdint cimport int32_t, uint8_t

from congreve.records.byte_table cimport Key
from congreve.remoting.wire.fast_headers cimport SendHeader
from congreve.remoting.wire.frame cimport HEADER_FIELDS_MAX, Header
from congreve.remoting.wire.hmac_sha1 cimport HmacKey, Sha1
from congreve.remoting.wire.slices cimport Slice

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_rwlock_t:
        pass
    ctypedef struct pthread_rwlockattr_t:
        pass
    int PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP
    int pthread_rwlockattr_init(pthread_rwlockattr_t *attributes)
    int pthread_rwlockattr_setkind_np(pthread_rwlockattr_t *attributes, int kind)
    int pthread_rwlockattr_destroy(pthread_rwlockattr_t *attributes)
    int pthread_rwlock_init(pthread_rwlock_t *lock, pthread_rwlockattr_t *attributes)
    int pthread_rwlock_destroy(pthread_rwlock_t *lock)
    int pthread_rwlock_rdlock(pthread_rwlock_t *lock)
    int pthread_rwlock_wrlock(pthread_rwlock_t *lock)
    int pthread_rwlock_unlock(pthread_rwlock_t *lock)


# A topic or group with the permissions of one account.
cdef struct PermEntry:
    Key name
    uint8_t perm

# Names with permissions, and the permission of all others.
cdef struct PermTable:
    Key **slots                 # of PermEntries
    Py_ssize_t capacity
    uint8_t default_perm

cdef struct AccountEntry:
    Key access_key
    bint may_do_all
    HmacKey secret
    PermTable topics
    PermTable groups


# The places of a header's fields in order of their names. A client sends its fields in the same
# order each time, so each thread keeps one for its next request.
cdef struct FieldOrder:
    int32_t count
    int32_t places[HEADER_FIELDS_MAX]


cdef class AccountTable:
    cdef pthread_rwlock_t lock
    cdef Sha1 sha1
    cdef Key **slots            # of AccountEntries
    cdef Py_ssize_t capacity
    cdef FieldOrder order_of_callers

    cdef int add(self, account, Key **slots, Py_ssize_t capacity) except -1
    # Whether a request is a signed and permitted send or pull. False: the gate decides. Several
    # threads may call it at the same time.
    cdef bint may_pass(self, const Header *header, const SendHeader *send, Slice body,
                       FieldOrder *order) noexcept nogil
    cdef bint may_send(self, const Header *header, const SendHeader *send, Slice body,
                       FieldOrder *order) noexcept nogil
    cdef bint may_pull(self, const Header *header, Slice body, FieldOrder *order) noexcept nogil
    cdef const AccountEntry *signed_by(self, const Header *header, Slice body,
                                       FieldOrder *order) noexcept nogil
    cdef bint is_signed(self, const AccountEntry *account, const Header *header, Slice body,
                        Slice signature, FieldOrder *order) noexcept nogil
