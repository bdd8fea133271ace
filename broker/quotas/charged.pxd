# The names that a request is charged to, read from its decoded header.
from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memcmp

from congreve.broker.quotas.quota_table cimport ACCOUNT, ADDRESS, GROUP, TOPIC, Charged, QuotaTable
from congreve.remoting.wire.frame cimport Header
from congreve.remoting.wire.slices cimport Slice


# The account that has signed the request: it was checked before.
cdef inline Slice account_of(const Header *header) noexcept nogil:
    cdef Slice account
    cdef int32_t i
    account.data, account.length = NULL, 0
    for i in range(header.count):
        if header.fields[i].key.length == 9 and memcmp(
                header.fields[i].key.data, b"AccessKey", 9) == 0:
            account = header.fields[i].value
    return account


cdef inline Charged charged_to(QuotaTable table, const Header *header, Slice topic, Slice group,
                               const uint8_t *address, int32_t address_length) noexcept nogil:
    cdef Charged who
    who.names[TOPIC], who.names[GROUP] = topic, group
    who.names[ACCOUNT].data = NULL
    if table.has_accounts:
        who.names[ACCOUNT] = account_of(header)
    who.names[ADDRESS].data, who.names[ADDRESS].length = address, address_length
    return who
