# The names that a request is charged to, read from its decoded header.
from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memcmp

from congreve.base.slices cimport Slice
from congreve.broker.quotas.quota_table cimport ACCOUNT, ADDRESS, GROUP, TOPIC, Charged, QuotaTable
from congreve.remoting.wire.frame cimport Header


# The value of a field; NULL without the field. The account that has signed a request, AccessKey,
# was checked before.
cdef inline Slice field_of(const Header *header, const char *name, int32_t length) noexcept nogil:
    cdef Slice found
    cdef int32_t i
    found.data, found.length = NULL, 0
    for i in range(header.count):
        if header.fields[i].key.length == length and memcmp(
                header.fields[i].key.data, name, length) == 0:
            found = header.fields[i].value
    return found


cdef inline Charged charged_to(QuotaTable table, const Header *header, Slice topic, Slice group,
                               const uint8_t *address, int32_t address_length) noexcept nogil:
    cdef Charged payers
    payers.names[TOPIC], payers.names[GROUP] = topic, group
    payers.names[ACCOUNT].data = NULL
    if table.has_accounts:
        payers.names[ACCOUNT] = field_of(header, b"AccessKey", 9)
    payers.names[ADDRESS].data, payers.names[ADDRESS].length = address, address_length
    return payers
