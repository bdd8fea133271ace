from libc.stdint cimport uint8_t

from congreve.base.slices cimport Slice
from congreve.records.byte_table cimport Key
from congreve.remoting.signatures.hmac_sha1 cimport HmacKey, Sha1
from congreve.remoting.wire.fast_headers cimport SendHeader
from congreve.remoting.wire.frame cimport Header
from congreve.remoting.wire.signed_fields cimport SignedFields

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


cdef class AccountTable:
    cdef pthread_rwlock_t lock
    cdef Sha1 sha1
    cdef object private         # the topics that only administrators read
    cdef Key **slots            # of AccountEntries
    cdef Py_ssize_t capacity

    cdef int add(self, account, Key **slots, Py_ssize_t capacity) except -1
    # Around calls of may_pass(): the accounts stay the same meanwhile. Several threads may be
    # between the two at the same time, each for a chunk of requests at most.
    cdef inline void begin_checks(self) noexcept nogil:
        pthread_rwlock_rdlock(&self.lock)

    cdef inline void end_checks(self) noexcept nogil:
        pthread_rwlock_unlock(&self.lock)

    # Whether a request is a permitted send, pull, pop or acknowledgement with the right signature.
    # False: the gate decides.
    cdef bint may_pass(self, const Header *header, const SendHeader *send, Slice body,
                       const SignedFields *signed) noexcept nogil
    cdef bint is_signed(self, const HmacKey *key, const Header *header, Slice body,
                        const SignedFields *signed) noexcept nogil
    cdef const AccountEntry *account_of(self, const Header *header,
                                        const SignedFields *signed) noexcept nogil
    cdef const AccountEntry *find(self, Slice access_key) noexcept nogil
    # The account with this access key, if `hex` is its HmacSHA1 of `content`; NULL otherwise.
    cdef const AccountEntry *signer(self, Slice access_key, Slice content,
                                    Slice hex) noexcept nogil


# Whether an account may send to a topic, and consume from one with a group.
cdef bint may_produce(const AccountEntry *account, Slice topic) noexcept nogil
cdef bint may_consume(const AccountEntry *account, Slice topic, Slice group) noexcept nogil
