from congreve.broker.pull.validated_pull cimport ValidatedPull, ValidatedPulls
from congreve.broker.quotas.quota_table cimport Charged, QuotaTable
from congreve.engine.read.gather cimport Gather
from congreve.remoting.wire.fast_headers cimport PullHeader
from congreve.remoting.wire.frame cimport Frame, Header


cdef class PullPath:
    cdef object pulls
    cdef ValidatedPulls validated_pulls
    cdef Gather gather
    cdef QuotaTable quotas
    cdef PullHeader pull        # of the current request
    cdef Charged charged        # by the quotas
    cdef bint answered          # the last pull got its answer at once

    # Answers a pull that finds messages, or suspends it. False: nothing was done, the Python
    # handler serves it.
    cdef bint serve(self, object connection, const Frame *frame, const Header *header) except -1

    # Refuses or postpones a pull whose quota is used up.
    cdef bint is_limited(self, object connection, const Frame *frame,
                         const Header *header) except -1

    cdef bint suspend(self, object connection, const Frame *frame, const Header *header,
                      ValidatedPull validated) except -1
