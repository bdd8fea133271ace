from congreve.base.slices cimport Slice
from congreve.broker.accounts.account_table cimport AccountEntry, AccountTable
from congreve.remoting.lanes.http2 cimport Call


cdef class CallAccounts:
    cdef AccountTable table     # None: compiled code cannot check signatures

    # Whether the call is signed by an account that may send to the topic, or consume from it with
    # the group; `access_key` is then the account's, in the bytes of the call. False: the rules in
    # Python decide.
    cdef bint admit_producer(self, const Call *call, Slice topic,
                             Slice *access_key) noexcept nogil
    cdef bint admit_consumer(self, const Call *call, Slice topic, Slice group,
                             Slice *access_key) noexcept nogil
    cdef const AccountEntry *caller(self, const Call *call, Slice *access_key) noexcept nogil
