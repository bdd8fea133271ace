"""The accounts for compiled code: whether an ordinary send or pull is signed and permitted.

It accepts only requests that the gate (`broker/accounts/gate.py`) accepts, and leaves all others to
the gate.
"""

cimport cython
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport int32_t
from libc.string cimport memcmp, memcpy, memset

from congreve.records.byte_table cimport key_of, slot_of
from congreve.records.layout cimport SYS_TRANSACTION_MASK
from congreve.records.message.topics cimport DLQ_PREFIX, RETRY_PREFIX
from congreve.remoting.signatures.hmac_sha1 cimport SHA1_SIZE, SIGNATURE_SIZE, Sha1Context
from congreve.remoting.wire.fast_headers cimport (
    POP_MESSAGE,
    AckHeader,
    PopHeader,
    PullHeader,
    is_ack,
    is_pull,
    is_send,
    read_ack_header,
    read_pop_header,
    read_pull_header,
)
from congreve.remoting.wire.frame cimport (
    FRAME_WHOLE,
    HEADER_OK,
    Frame,
    next_frame,
)
from congreve.remoting.wire.header_decoder cimport HeaderDecoder

from congreve.broker.accounts.accounts import Perm
from congreve.records.message.topics import NOT_FOR_CONSUMERS, TRACE_TOPIC

cdef enum:
    DENY = 1
    PUB = 4
    SUB = 8
    RETRY_LENGTH = 7            # of RETRY_PREFIX
    DLQ_LENGTH = 5


cdef void free_perms(PermTable *table) noexcept:
    cdef Py_ssize_t i
    for i in range(table.capacity):
        PyMem_Free(table.slots[i])
    PyMem_Free(table.slots)


cdef void free_accounts(Key **slots, Py_ssize_t capacity) noexcept:
    cdef AccountEntry *account
    cdef Py_ssize_t i
    if slots == NULL:
        return
    for i in range(capacity):
        account = <AccountEntry *> slots[i]
        if account != NULL:
            free_perms(&account.topics)
            free_perms(&account.groups)
            memset(&account.secret, 0, sizeof(HmacKey))
            PyMem_Free(account)
    PyMem_Free(slots)


cdef Py_ssize_t capacity_for(Py_ssize_t count) noexcept:
    cdef Py_ssize_t capacity = 8
    while capacity < 2 * count:
        capacity *= 2
    return capacity


cdef void *entry_of(bytes name, Py_ssize_t size) except NULL:
    """A zeroed entry of `size` bytes whose key is a copy of `name` after it."""
    cdef uint8_t *entry = <uint8_t *> PyMem_Calloc(1, size + <Py_ssize_t> len(name))
    if entry == NULL:
        raise MemoryError()
    memcpy(entry + size, <const uint8_t *> name, len(name))
    (<Key *> entry)[0] = key_of(entry + size, <int32_t> len(name))
    return entry


cdef uint8_t bits_of(int perm) noexcept:
    return 0 if perm & DENY else perm & (PUB | SUB)


cdef int fill_perms(PermTable *table, dict perms, int default) except -1:
    cdef PermEntry *entry
    table.default_perm = bits_of(default)
    table.capacity = capacity_for(len(perms))
    table.slots = <Key **> PyMem_Calloc(table.capacity, sizeof(Key *))
    if table.slots == NULL:
        table.capacity = 0
        raise MemoryError()
    for name, perm in perms.items():
        entry = <PermEntry *> entry_of(name.encode(), sizeof(PermEntry))
        entry.perm = bits_of(perm)
        slot_of(table.slots, table.capacity, &entry.name)[0] = &entry.name
    return 0


cdef uint8_t perm_of(const PermTable *table, const uint8_t *name, int32_t length,
                     uint8_t default) noexcept nogil:
    cdef Key key = key_of(name, length)
    cdef PermEntry *entry = <PermEntry *> slot_of(table.slots, table.capacity, &key)[0]
    return default if entry == NULL else entry.perm


cdef bint group_allows(const AccountEntry *account, const uint8_t *group, int32_t length,
                       uint8_t wanted) noexcept nogil:
    return (perm_of(&account.groups, group, length, account.groups.default_perm) & wanted) != 0


cdef inline bint is_retry(Slice topic) noexcept nogil:
    return topic.length >= RETRY_LENGTH and memcmp(topic.data, RETRY_PREFIX, RETRY_LENGTH) == 0


cdef bint topic_allows(const AccountEntry *account, Slice topic, uint8_t wanted) noexcept nogil:
    """Whether the account may use the topic; a retry topic belongs to its group, and so do its dead
    letters (Account.topic_perm)."""
    cdef uint8_t default = account.topics.default_perm
    if is_retry(topic):
        return group_allows(account, topic.data + RETRY_LENGTH, topic.length - RETRY_LENGTH, SUB)
    if topic.length >= DLQ_LENGTH and memcmp(topic.data, DLQ_PREFIX, DLQ_LENGTH) == 0:
        default = default & PUB | SUB & perm_of(
            &account.groups, topic.data + DLQ_LENGTH, topic.length - DLQ_LENGTH, 0
        )
    return (perm_of(&account.topics, topic.data, topic.length, default) & wanted) != 0


cdef bint may_send(const AccountEntry *account, const SendHeader *send) noexcept nogil:
    return send.complete and (account.may_do_all or (
        topic_allows(account, send.topic, PUB)
        and (not send.sys_flag & SYS_TRANSACTION_MASK or group_allows(
            account, send.producer_group.data, send.producer_group.length, PUB
        ))
    ))


cdef bint may_pull(const AccountEntry *account, const Header *header) noexcept nogil:
    cdef PullHeader pull
    read_pull_header(header, &pull)
    return pull.complete and may_consume(account, pull.topic, pull.consumer_group)


cdef bint may_produce(const AccountEntry *account, Slice topic) noexcept nogil:
    return account.may_do_all or topic_allows(account, topic, PUB)


cdef bint may_consume(const AccountEntry *account, Slice topic, Slice group) noexcept nogil:
    return account.may_do_all or (
        topic_allows(account, topic, SUB)
        and group_allows(account, group.data, group.length, SUB)
    )


cdef bint may_pop(const AccountEntry *account, const Header *header) noexcept nogil:
    cdef PopHeader pop
    read_pop_header(header, &pop)
    return pop.complete and may_consume(account, pop.topic, pop.consumer_group)


cdef bint may_acknowledge(const AccountEntry *account, const Header *header) noexcept nogil:
    cdef AckHeader ack
    read_ack_header(header, &ack)
    # For what came again the gate looks at the topic that it was sent to.
    return (
        ack.complete
        and not is_retry(ack.topic)
        and may_consume(account, ack.topic, ack.consumer_group)
    )


cdef inline uint8_t digit_of(uint8_t sign) noexcept nogil:
    """The value of a hexadecimal digit; 0xFF for another sign."""
    if c"0" <= sign <= c"9":
        return sign - c"0"
    sign |= 0x20
    return sign - c"a" + 10 if c"a" <= sign <= c"f" else 0xFF


@cython.final
cdef class AccountTable:
    """The current accounts, which replace() changes while other threads check requests.

    Only administrators read the topics in `private`. (RocketMQ: PlainPermissionManager.)
    """

    def __cinit__(self, Sha1 sha1 not None, frozenset private not None=NOT_FOR_CONSUMERS):
        cdef pthread_rwlockattr_t attributes
        pthread_rwlockattr_init(&attributes)
        # Busy lanes must not keep replace() waiting, which holds the interpreter's lock.
        pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP)
        pthread_rwlock_init(&self.lock, &attributes)
        pthread_rwlockattr_destroy(&attributes)
        self.sha1 = sha1
        self.private = private
        self.replace(())

    def __dealloc__(self):
        free_accounts(self.slots, self.capacity)
        pthread_rwlock_destroy(&self.lock)

    def __len__(self):
        return sum(1 for i in range(self.capacity) if self.slots[i] != NULL)

    def replace(self, accounts):
        """Replace the accounts."""
        accounts = list(accounts)
        cdef Py_ssize_t capacity = capacity_for(len(accounts))
        cdef Key **slots = <Key **> PyMem_Calloc(capacity, sizeof(Key *))
        cdef Key **old
        if slots == NULL:
            raise MemoryError()
        try:
            for account in accounts:
                self.add(account, slots, capacity)
        except BaseException:
            free_accounts(slots, capacity)
            raise
        pthread_rwlock_wrlock(&self.lock)
        old, self.slots = self.slots, slots
        capacity, self.capacity = self.capacity, capacity
        pthread_rwlock_unlock(&self.lock)
        free_accounts(old, capacity)

    cdef int add(self, account, Key **slots, Py_ssize_t capacity) except -1:
        cdef bytes secret = account.secret_key.encode()
        cdef AccountEntry *entry = <AccountEntry *> entry_of(
            account.access_key.encode(), sizeof(AccountEntry)
        )
        slot_of(slots, capacity, &entry.access_key)[0] = &entry.access_key
        entry.may_do_all = account.may_do_all
        self.sha1.set_key(&entry.secret, secret, len(secret))
        topics = {name: account.topic_perm(name) for name in (*account.topics, TRACE_TOPIC)}
        reads = Perm.SUB if account.admin else Perm(0)
        for name in self.private:
            topics[name] = account.topic_perm(name) & Perm.PUB | reads
        fill_perms(&entry.topics, topics, account.default_topic_perm)
        fill_perms(&entry.groups, account.groups, account.default_group_perm)
        return 0

    # --- without the GIL

    cdef bint may_pass(self, const Header *header, const SendHeader *send, Slice body,
                       const SignedFields *signed) noexcept nogil:
        cdef const AccountEntry *account
        if is_send(header.code):
            account = self.account_of(header, signed)
            if account == NULL or not may_send(account, send):
                return False
        elif is_pull(header.code):
            account = self.account_of(header, signed)
            if account == NULL or not may_pull(account, header):
                return False
        elif header.code == POP_MESSAGE:
            account = self.account_of(header, signed)
            if account == NULL or not may_pop(account, header):
                return False
        elif is_ack(header.code):
            account = self.account_of(header, signed)
            if account == NULL or not may_acknowledge(account, header):
                return False
        else:
            return False
        return self.is_signed(&account.secret, header, body, signed)

    cdef bint is_signed(self, const HmacKey *key, const Header *header, Slice body,
                        const SignedFields *signed) noexcept nogil:
        """Whether the signature is right (RocketMQ: AclUtils.combineRequestContent, AclSigner)."""
        cdef Slice signature = header.fields[signed.signature].value
        cdef uint8_t[SIGNATURE_SIZE] expected
        cdef Sha1Context context
        cdef Slice value
        cdef uint8_t wrong = 0
        cdef int32_t i
        if signature.length != SIGNATURE_SIZE:
            return False
        self.sha1.begin(key, &context)
        for i in range(header.count):
            if signed.places[i] != signed.signature:
                value = header.fields[signed.places[i]].value
                self.sha1.put(&context, value.data, value.length)
        self.sha1.put(&context, body.data, body.length)
        self.sha1.end(key, &context, expected)
        for i in range(SIGNATURE_SIZE):  # in a time that does not depend on the bytes
            wrong |= expected[i] ^ signature.data[i]
        return wrong == 0

    cdef const AccountEntry *account_of(self, const Header *header,
                                        const SignedFields *signed) noexcept nogil:
        """The account that the request names; NULL: none, or not decided here."""
        if signed.access_key < 0 or signed.signature < 0 or not signed.distinct:
            return NULL
        return self.find(header.fields[signed.access_key].value)

    cdef const AccountEntry *find(self, Slice access_key) noexcept nogil:
        """The account with this access key, NULL without one."""
        cdef Key key = key_of(access_key.data, access_key.length)
        return <AccountEntry *> slot_of(self.slots, self.capacity, &key)[0]

    cdef const AccountEntry *signer(self, Slice access_key, Slice content,
                                    Slice hex) noexcept nogil:
        cdef const AccountEntry *account = self.find(access_key)
        cdef uint8_t[SHA1_SIZE] digest
        cdef Sha1Context context
        cdef uint8_t wrong = 0
        cdef int32_t i
        if account == NULL or hex.length != 2 * SHA1_SIZE:
            return NULL
        self.sha1.begin(&account.secret, &context)
        self.sha1.put(&context, content.data, content.length)
        self.sha1.end_raw(&account.secret, &context, digest)
        for i in range(SHA1_SIZE):  # in a time that does not depend on the bytes
            wrong |= digest[i] ^ (digit_of(hex.data[2 * i]) << 4 | digit_of(hex.data[2 * i + 1]))
            wrong |= (digit_of(hex.data[2 * i]) | digit_of(hex.data[2 * i + 1])) & 0xF0
        return account if wrong == 0 else NULL

    # --- for Python callers

    def lets_pass(self, bytes frame not None, HeaderDecoder headers not None):
        """Whether compiled code may serve this frame; `headers` has decoded those before it."""
        cdef Frame whole
        cdef Header header
        cdef SendHeader send
        cdef bint passes
        headers.keeps_fields = True
        if next_frame(frame, len(frame), &whole) != FRAME_WHOLE:
            return False
        if headers.decode(&whole, &header, &send) != HEADER_OK:
            return False
        self.begin_checks()
        passes = self.may_pass(&header, &send, whole.body, headers.signed)
        self.end_checks()
        return bool(passes)
