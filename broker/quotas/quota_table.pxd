from libc.stdint cimport int32_t, int64_t

from congreve.base.atomic cimport load_relaxed
from congreve.base.pthread cimport pthread_mutex_t
from congreve.base.slices cimport Slice
from congreve.records.byte_table cimport Key

# What a request is charged to.
cdef enum:
    TOPIC = 0
    GROUP = 1
    ACCOUNT = 2
    ADDRESS = 3         # 4 or 16 bytes
    KINDS = 4

# What a request does, and the first of its two rates.
cdef enum QuotaUse:
    SENDS = 0
    PULLS = 2
    COLD_READS = 4
    HEARTBEATS = 6
    HELD_PULLS = 8      # a number at a time, which has one limit

cdef enum:
    RATES = 8           # messages, reads or heartbeats, and bytes a second for each use
    LIMITS = 9          # the rates, and held pulls
    USES = 5

# A token bucket that holds what flows in during one second; a balance below zero is a debt.
cdef struct Bucket:
    double rate         # a second; 0: no limit
    double balance

cdef struct QuotaEntry:
    Key name
    int64_t filled_ns   # when the buckets were filled last
    int64_t[USES] limited   # requests that found the quota used up
    bint own            # its limits were set for this name, so it stays
    Bucket[RATES] buckets
    double held_max     # pulls that may wait at a time; 0: no limit
    int64_t held        # pulls that wait

# One kind: its entries by name, and the rates of names without limits of their own.
cdef struct QuotaKind:
    Key **slots         # of QuotaEntries
    Py_ssize_t capacity
    Py_ssize_t count
    bint in_use         # some name has a limit
    bint has_default
    double[LIMITS] default_rates
    QuotaEntry surplus    # charged in place of names beyond `names_max`
    int64_t swept_ns
    int64_t[USES] limited   # the sum of all its names, those that were dropped included

# The names that a request is charged to; `data` is NULL where it has none.
cdef struct Charged:
    Slice[KINDS] names


cdef class QuotaTable:
    cdef pthread_mutex_t mutex
    cdef QuotaKind[KINDS] kinds
    cdef int64_t in_use         # not 0: some name has a limit
    cdef Py_ssize_t names_max
    cdef readonly bint has_accounts
    """Whether requests are charged to accounts: something has checked their signatures."""

    # Charges a request if each bucket of its names has something left. Returns 0, or the
    # nanoseconds until this is the case; then nothing was charged.
    cdef int64_t take(self, const Charged *payers, QuotaUse use, int64_t messages, int64_t size,
                      int64_t now_ns) noexcept nogil
    # Charges a request in any case. Returns the nanoseconds until its debt is paid.
    cdef int64_t charge(self, const Charged *payers, QuotaUse use, int64_t messages, int64_t size,
                        int64_t now_ns) noexcept nogil
    # take(), or charge() if it is `always` paid.
    cdef int64_t spend(self, const Charged *payers, QuotaUse use, int64_t messages, int64_t size,
                       int64_t now_ns, bint always) noexcept nogil
    # Takes back what take() has charged.
    cdef void give_back(self, const Charged *payers, QuotaUse use, int64_t messages, int64_t size,
                        int64_t now_ns) noexcept nogil
    # Takes a place for a pull that waits. `places` gets what release_place() needs. False: there is
    # no place, and the refusal `counts` or is tried again.
    cdef bint hold(self, const Charged *payers, QuotaEntry **places, bint counts) noexcept nogil
    cdef void release_place(self, QuotaEntry **places) noexcept nogil
    cdef void find_all(self, const Charged *payers, int64_t now_ns,
                       QuotaEntry **found) noexcept nogil


# The names (topic, group, account, address) of a Python caller, each bytes or None.
cdef Charged charged(tuple names) except *


# Whether some name has a limit.
cdef inline bint has_quotas(QuotaTable table) noexcept nogil:
    return load_relaxed(&table.in_use) != 0
