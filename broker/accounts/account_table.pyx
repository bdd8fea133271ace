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
from congreve.records.message.topics cimport RETRY_PREFIX
from congreve.remoting.wire.fast_headers cimport PullHeader, is_pull, is_send, read_pull_header
from congreve.remoting.wire.frame cimport (
    FRAME_WHOLE,
    HEADER_OK,
    Frame,
    next_frame,
)
from congreve.remoting.wire.header_decoder cimport HeaderDecoder
from congreve.remoting.wire.hmac_sha1 cimport SIGNATURE_SIZE, Sha1Context
from congreve.remoting.wire.slices cimport COPY_SLACK

from congreve.broker.accounts.accounts import Perm
from congreve.records.message.topics import TRACE_TOPIC

cdef enum:
    DENY = 1
    PUB = 4
    SUB = 8
    RETRY_LENGTH = 7            # of RETRY_PREFIX
    CONTENT_ROOM = 1024


# The signed text, as far as it was not hashed yet.
cdef struct Content:
    Sha1Context context
    int32_t used
    uint8_t text[CONTENT_ROOM + COPY_SLACK]


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


cdef bint perm_of(const PermTable *table, const uint8_t *name, int32_t length,
                  uint8_t wanted) noexcept nogil:
    cdef Key key = key_of(name, length)
    cdef PermEntry *entry = <PermEntry *> slot_of(table.slots, table.capacity, &key)[0]
    return ((table.default_perm if entry == NULL else entry.perm) & wanted) != 0


cdef bint topic_allows(const AccountEntry *account, Slice topic, uint8_t wanted) noexcept nogil:
    """Whether the account may use the topic; a retry topic belongs to its group."""
    if topic.length >= RETRY_LENGTH and memcmp(topic.data, RETRY_PREFIX, RETRY_LENGTH) == 0:
        return perm_of(
            &account.groups, topic.data + RETRY_LENGTH, topic.length - RETRY_LENGTH, SUB
        )
    return perm_of(&account.topics, topic.data, topic.length, wanted)


cdef inline void put(Sha1 sha1, Content *content, Slice value, bint has_slack) noexcept nogil:
    """Add a value: SHA-1 is quicker with one long text than with many short ones.

    `has_slack`: COPY_SLACK bytes after it may be read.
    """
    cdef uint8_t *out
    cdef int32_t done = 0
    if content.used + value.length > CONTENT_ROOM:
        sha1.put(&content.context, content.text, content.used)
        content.used = 0
    if value.length > CONTENT_ROOM:
        sha1.put(&content.context, value.data, value.length)
        return
    out = content.text + content.used
    content.used += value.length
    if not has_slack:
        memcpy(out, value.data, value.length)
        return
    while done < value.length:
        memcpy(out + done, value.data + done, COPY_SLACK)
        done += COPY_SLACK


@cython.final
cdef class AccountTable:
    """The current accounts, which replace() changes while other threads check requests.

    (RocketMQ: PlainPermissionManager.)
    """

    def __cinit__(self, Sha1 sha1 not None):
        cdef pthread_rwlockattr_t attributes
        pthread_rwlockattr_init(&attributes)
        # Busy lanes must not keep replace() waiting, which holds the interpreter's lock.
        pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP)
        pthread_rwlock_init(&self.lock, &attributes)
        pthread_rwlockattr_destroy(&attributes)
        self.sha1 = sha1
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
        owned = account.topics.get(TRACE_TOPIC, account.default_topic_perm)
        traces = Perm.PUB if owned & Perm.DENY else owned | Perm.PUB
        fill_perms(
            &entry.topics, {**account.topics, TRACE_TOPIC: traces}, account.default_topic_perm
        )
        fill_perms(&entry.groups, account.groups, account.default_group_perm)
        return 0

    # --- without the GIL

    cdef bint may_pass(self, const Header *header, const SendHeader *send, Slice body,
                       const SignedFields *signed) noexcept nogil:
        if is_send(header.code):
            return self.may_send(header, send, body, signed)
        return is_pull(header.code) and self.may_pull(header, body, signed)

    cdef bint may_send(self, const Header *header, const SendHeader *send, Slice body,
                       const SignedFields *signed) noexcept nogil:
        cdef const AccountEntry *account = self.signed_by(header, body, signed)
        return account != NULL and send.complete and (account.may_do_all or (
            topic_allows(account, send.topic, PUB)
            and (not send.sys_flag & SYS_TRANSACTION_MASK or perm_of(
                &account.groups, send.producer_group.data, send.producer_group.length, PUB
            ))
        ))

    cdef bint may_pull(self, const Header *header, Slice body,
                       const SignedFields *signed) noexcept nogil:
        cdef const AccountEntry *account = self.signed_by(header, body, signed)
        cdef PullHeader pull
        if account == NULL:
            return False
        read_pull_header(header, &pull)
        return pull.complete and (account.may_do_all or (
            topic_allows(account, pull.topic, SUB)
            and perm_of(
                &account.groups, pull.consumer_group.data, pull.consumer_group.length, SUB
            )
        ))

    cdef const AccountEntry *signed_by(self, const Header *header, Slice body,
                                       const SignedFields *signed) noexcept nogil:
        """The account whose signature the request has; NULL: none, or not decided here."""
        cdef Slice access_key
        cdef Key key
        cdef AccountEntry *account
        if signed.access_key < 0 or signed.signature < 0 or not signed.distinct:
            return NULL
        access_key = header.fields[signed.access_key].value
        key = key_of(access_key.data, access_key.length)
        account = <AccountEntry *> slot_of(self.slots, self.capacity, &key)[0]
        if account == NULL or not self.is_signed(account, header, body, signed):
            return NULL
        return account

    cdef bint is_signed(self, const AccountEntry *account, const Header *header, Slice body,
                        const SignedFields *signed) noexcept nogil:
        cdef Slice signature = header.fields[signed.signature].value
        cdef uint8_t[SIGNATURE_SIZE] expected
        cdef Content content
        # Values are in the frame, before its body, or in the decoder's scratch, which has slack.
        cdef bint has_slack = body.length >= COPY_SLACK
        cdef uint8_t wrong = 0
        cdef int32_t i
        if signature.length != SIGNATURE_SIZE:
            return False
        content.used = 0
        self.sha1.begin(&account.secret, &content.context)
        for i in range(header.count):
            if signed.places[i] != signed.signature:
                put(self.sha1, &content, header.fields[signed.places[i]].value, has_slack)
        put(self.sha1, &content, body, False)
        self.sha1.put(&content.context, content.text, content.used)
        self.sha1.end(&account.secret, &content.context, expected)
        for i in range(SIGNATURE_SIZE):
            wrong |= expected[i] ^ signature.data[i]
        return wrong == 0

    # --- for Python callers

    def lets_pass(self, bytes frame not None):
        """Whether compiled code may serve this frame."""
        cdef HeaderDecoder headers = HeaderDecoder()
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
