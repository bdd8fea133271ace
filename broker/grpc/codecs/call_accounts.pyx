"""What compiled code asks about accounts: who signed a call, and whether the call may pass.

`broker/grpc/access.py` has the rules; a call that does not pass here is left to them.
"""

cimport cython
from libc.stdint cimport int32_t, uint8_t

from congreve.base.slices cimport slice_of
from congreve.broker.accounts.account_table cimport may_consume, may_produce
from congreve.records.byte_compare cimport is_text
from congreve.remoting.lanes.http2 cimport CallField


cdef inline Slice part(Slice text, int32_t start, int32_t end) noexcept nogil:
    cdef Slice found
    found.data, found.length = text.data + start, end - start
    return found


cdef int32_t find(Slice text, uint8_t sign, int32_t start) noexcept nogil:
    """Where the sign is in a text at or behind `start`; the text's length without one."""
    cdef int32_t i = start
    while i < text.length and text.data[i] != sign:
        i += 1
    return i


cdef bint read_authorization(Slice header, Slice *access_key, Slice *signature) noexcept nogil:
    """Read the header `authorization`; False for one of another form (Authorization.read)."""
    cdef int32_t at = find(header, c" ", 0) + 1
    cdef int32_t end, equals
    cdef Slice item, value
    access_key.data = signature.data = NULL
    access_key.length = signature.length = 0
    while at <= header.length:
        end = find(header, c",", at)
        item = part(header, at, end)
        at = end + 1
        while item.length and (item.data[0] == c" " or item.data[0] == c"\t"):
            item = part(item, 1, item.length)
        while item.length and (
            item.data[item.length - 1] == c" " or item.data[item.length - 1] == c"\t"
        ):
            item.length -= 1
        equals = find(item, c"=", 0)
        if equals == item.length:
            return False
        value = part(item, equals + 1, item.length)
        if is_text(item.data, equals, b"Credential"):
            access_key[0] = part(value, 0, find(value, c"/", 0))
        elif is_text(item.data, equals, b"Signature"):
            signature[0] = value
    return access_key.length > 0 and signature.length > 0


cdef bint is_ascii(Slice text) noexcept nogil:
    cdef int32_t i
    for i in range(text.length):
        if text.data[i] >= 0x80:
            return False
    return True


@cython.final
cdef class CallAccounts:
    """Whether the accounts of `table` permit calls, for compiled code.

    (RocketMQ 5: AuthenticationPipeline, AuthorizationPipeline.)
    """

    def __init__(self, AccountTable table):
        self.table = table

    cdef bint admit_producer(self, const Call *call, Slice topic,
                             Slice *access_key) noexcept nogil:
        cdef const AccountEntry *account
        cdef bint passes
        if self.table is None:
            return False
        self.table.begin_checks()
        account = self.caller(call, access_key)
        passes = account != NULL and may_produce(account, topic)
        self.table.end_checks()
        return passes

    cdef bint admit_consumer(self, const Call *call, Slice topic, Slice group,
                             Slice *access_key) noexcept nogil:
        cdef const AccountEntry *account
        cdef bint passes
        if self.table is None:
            return False
        self.table.begin_checks()
        account = self.caller(call, access_key)
        passes = account != NULL and may_consume(account, topic, group)
        self.table.end_checks()
        return passes

    cdef const AccountEntry *caller(self, const Call *call, Slice *access_key) noexcept nogil:
        cdef Slice signature
        cdef Slice signed = call.fields[<int> CallField.DATE_TIME]
        if not signed.length or not is_ascii(signed) or not read_authorization(
            call.fields[<int> CallField.AUTHORIZATION], access_key, &signature
        ):
            return NULL
        return self.table.signer(access_key[0], signed, signature)


# --- for tests

def producer_of(CallAccounts accounts not None, bytes authorization not None,
                bytes date_time not None, bytes topic not None):
    """The access key of a caller that may send to the topic, None without one."""
    cdef Call call
    cdef Slice access_key
    call.fields[<int> CallField.AUTHORIZATION] = slice_of(authorization)
    call.fields[<int> CallField.DATE_TIME] = slice_of(date_time)
    if accounts.admit_producer(&call, slice_of(topic), &access_key):
        return access_key.data[:access_key.length]
    return None
