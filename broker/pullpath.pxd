from libc.stdint cimport int32_t

from congreve.broker.pulltickets cimport PullTicket, PullTickets
from congreve.engine.reader cimport Gather
from congreve.remoting.frame cimport Frame, Header
from congreve.remoting.hotheaders cimport PullHeader


cdef class PullPath:
    cdef object pulls
    cdef PullTickets tickets
    cdef Gather gather
    cdef PullHeader pull        # the one at hand

    # Answers a pull that finds messages, holds one that may wait; False: nothing was done, it is
    # for the Python handler.
    cdef bint serve(self, object connection, const Frame *frame, const Header *header) except -1

    cdef bint hold(self, object connection, const Frame *frame, int32_t opaque,
                   PullTicket ticket) except -1
