"""A pull that waits, and the short way to its answer once its queue has something for it."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

from congreve.engine.reader cimport (
    GET_COLD,
    GET_FOUND,
    GET_NO_MATCHED_MESSAGE,
    GET_NO_MESSAGE_IN_QUEUE,
    GET_OFFSET_OVERFLOW_ONE,
    FilePart,
)
from congreve.remoting.answers cimport (
    PULL_REMARK_MAX,
    PULL_RESPONSE_MAX,
    encode_pull_response,
)
from congreve.remoting.directsend cimport send_file, send_head
from congreve.remoting.slices cimport Slice


@cython.final
cdef class HeldPull:
    def __init__(self, connection, bytes frame not None, PullTicket ticket not None, *,
                 int64_t offset, int32_t max_count, int32_t serialize_type, int32_t opaque):
        self.connection = connection
        self.frame = frame
        self.ticket = ticket
        self.offset = offset
        self.max_count = max(max_count, 1)
        self.serialize_type = serialize_type
        self.opaque = opaque
        self.cold_offset = -1

    @property
    def queue(self):
        return self.ticket.queue


@cython.final
cdef class PullWaker:
    def __init__(self, *, PullTickets tickets not None, store, resume, wait_for_disk):
        self.tickets = tickets
        self.gather = Gather(store.log, store.limits, spares_disk=True)
        self.resume = resume
        self.wait_for_disk = wait_for_disk

    def wake(self, HeldPull held not None):
        if self.tickets.unchanged(held.ticket):
            if self.look(held):
                return True
            if self.gather.status == GET_COLD and self.suspend(held):
                return True
            if may_wait(self.gather.status, held.offset):
                return False
        self.resume(held)
        return True

    cdef bint suspend(self, HeldPull held) except -1:
        """Let it wait for the disk, once for each place: what was taken back meanwhile is read
        again by whoever answers it."""
        if held.cold_offset == self.gather.cold_offset:
            return False
        held.cold_offset = self.gather.cold_offset
        held.offset = self.gather.next_offset
        return self.wait_for_disk(held, held.cold_offset)

    cdef bint look(self, HeldPull held) except -1:
        """Answer it where something matches; what does not is not looked at again."""
        cdef PullTicket ticket = held.ticket
        cdef Gather gather = self.gather
        while True:
            gather.look(ticket.queue, held.offset, held.max_count, ticket.tags, ticket.records)
            if gather.status != GET_NO_MATCHED_MESSAGE:
                break
            held.offset = gather.next_offset
        if gather.status != GET_FOUND or self.tickets.config.slave_read_enable:
            return False
        answer_found(held.connection, gather, held.serialize_type, held.opaque)
        ticket.counter.add(gather.count, gather.size)
        return True

    def release_segments(self):
        self.gather.segments = None


cdef bint may_wait(int status, int64_t offset) noexcept nogil:
    return status == GET_OFFSET_OVERFLOW_ONE or (status == GET_NO_MESSAGE_IN_QUEUE and offset == 0)


cdef int answer_found(object connection, Gather gather, int32_t serialize_type,
                      int32_t opaque) except -1:
    cdef uint8_t head[PULL_RESPONSE_MAX + PULL_REMARK_MAX]
    cdef Slice remark
    cdef Py_ssize_t length
    cdef bytes answer
    remark.data = b"FOUND"
    remark.length = 5
    length = encode_pull_response(
        head, serialize_type, opaque, 0, remark, 0,
        gather.next_offset, gather.min_offset, gather.max_offset, <int32_t> gather.size,
    )
    if gather.in_one_piece():
        answer_from_file(connection, gather, head, length)
    elif gather.in_views():
        connection.writelines([head[:length], *gather.views()])
    else:
        answer = PyBytes_FromStringAndSize(NULL, length + gather.size)
        memcpy(PyBytes_AS_STRING(answer), head, length)
        gather.copy_to(PyBytes_AS_STRING(answer) + length)
        connection.write(answer)
    return 0


cdef int answer_from_file(object connection, Gather gather, const uint8_t *head,
                          Py_ssize_t length) except -1:
    """Have the kernel send the log's pages as they are; what it does not take now is written."""
    cdef int socket = connection.idle_socket()
    cdef FilePart part
    cdef int64_t head_taken = 0
    cdef int64_t taken = 0
    if socket >= 0:
        part = gather.lend()
        if part.descriptor >= 0:
            with nogil:
                head_taken = send_head(socket, head, length)
                if head_taken == length:
                    taken = send_file(socket, part.descriptor, part.offset, gather.size)
    if head_taken < 0 or taken < 0:
        connection.abort()
    elif taken < gather.size:
        connection.writelines([head[head_taken:length], gather.view(0, taken)])
    return 0
