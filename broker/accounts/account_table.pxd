from libc.stdint cimport uint8_t

from congreve.engine.log.append_lock cimport AppendLock
from congreve.records.byte_table cimport Key
from congreve.remoting.wire.fast_headers cimport SendHeader
from congreve.remoting.wire.frame cimport Header
from congreve.remoting.wire.hmac_sha1 cimport HmacKey, Sha1
from congreve.remoting.wire.slices cimport Slice

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
    cdef AppendLock lock
    cdef Sha1 sha1
    cdef Key **slots            # of AccountEntries
    cdef Py_ssize_t capacity

    cdef int add(self, account, Key **slots, Py_ssize_t capacity) except -1
    # Whether a request is a signed and permitted send or pull, under the lock. False: the gate
    # decides.
    cdef bint may_pass(self, const Header *header, const SendHeader *send,
                       Slice body) noexcept nogil
    cdef bint may_send(self, const Header *header, const SendHeader *send,
                       Slice body) noexcept nogil
    cdef bint may_pull(self, const Header *header, Slice body) noexcept nogil
    cdef const AccountEntry *signed_by(self, const Header *header, Slice body) noexcept nogil
    cdef bint is_signed(self, const AccountEntry *account, const Header *header, Slice body,
                        Slice signature) noexcept nogil
