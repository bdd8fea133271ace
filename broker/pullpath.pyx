"""Ordinary pulls for the hot path; the rules are in pull.py."""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t

from congreve.broker.heldpull cimport HeldPull, answer_found, may_wait
from congreve.broker.pulltickets cimport PullTicket
from congreve.engine.reader cimport GET_COLD, GET_FOUND, Gather
from congreve.remoting.frame cimport FLAG_ONEWAY, Frame, Header
from congreve.remoting.hotheaders cimport read_pull_header

cdef enum:
    SUSPEND = 2     # of a pull's sysFlag


cdef bytes whole(const Frame *frame):
    return PyBytes_FromStringAndSize(<const char *> frame.data, frame.size)


@cython.final
cdef class PullPath:
    def __init__(self, store, pulls):
        self.pulls = pulls
        self.tickets = pulls.tickets
        self.gather = Gather(store.log, store.limits, spares_disk=True)

    def release_segments(self):
        # A deleted segment keeps its disk space for as long as anybody maps it.
        self.gather.segments = None
        self.pulls.waker.release_segments()

    cdef bint serve(self, object connection, const Frame *frame, const Header *header) except -1:
        cdef PullTicket ticket
        read_pull_header(header, &self.pull)
        if not self.pull.complete or header.flag & FLAG_ONEWAY:
            return False
        ticket = self.tickets.find(&self.pull)
        if ticket is None:
            ticket = self.pulls.ticket(whole(frame), connection)
            if ticket is None:
                return False
            self.tickets.keep(ticket)
        if self.tickets.config.slave_read_enable:
            return False  # the Python handler knows which broker to suggest
        self.gather.look(ticket.queue, self.pull.queue_offset, max(self.pull.max_count, 1),
                         ticket.tags, ticket.records)
        if self.gather.status == GET_FOUND:
            answer_found(connection, self.gather, frame.serialize_type, header.opaque)
            ticket.counter.add(self.gather.count, self.gather.size)
        elif not self.hold(connection, frame, header.opaque, ticket):
            return False
        self.tickets.commit(ticket, &self.pull)
        return True

    cdef bint hold(self, object connection, const Frame *frame, int32_t opaque,
                   PullTicket ticket) except -1:
        """Let a pull wait that may: for a message, or for the disk."""
        cdef bint cold = self.gather.status == GET_COLD
        if not cold and not (self.pull.sys_flag & SUSPEND
                             and may_wait(self.gather.status, self.pull.queue_offset)):
            return False
        held = HeldPull(
            connection, whole(frame), ticket,
            offset=self.pull.queue_offset, max_count=self.pull.max_count,
            serialize_type=frame.serialize_type, opaque=opaque,
        )
        if cold:
            return self.pulls.cold.suspend(held, self.gather.cold_offset)
        return self.pulls.suspend(held, self.pull.suspend_timeout_ms)
