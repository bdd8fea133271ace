from libc.stdint cimport int64_t, uint8_t

from congreve.engine.log.commit_log cimport CommitLog, Segment

cdef enum:
    HEAD_MAX = 16
    INPUT_SIZE = 4096

# The result of a step without the GIL.
cdef enum Outcome:
    DONE = 0
    MORE = 1        # other slaves get a turn first
    ASKS = -1       # read() or send() has to look at it
    CLOSED = -2
    FAILED = -3     # `error` is the errno

# When a frame that ends at this physical offset was sent, in seconds.
cdef struct Mark:
    int64_t end
    double sent_at


cdef class SlaveConnection:
    cdef readonly object socket
    """The socket, which does not block."""
    cdef readonly str address
    """host:port of the slave."""
    cdef readonly bint started
    """Whether the slave has reported where to begin."""
    cdef readonly int64_t acknowledged
    """The slave has all bytes below this physical offset."""
    cdef readonly int64_t next
    """Physical offset of the next byte to send."""
    cdef public double read_at
    """When bytes of the slave were read last, by the monotonic clock in seconds."""
    cdef readonly double written_at
    """When bytes were sent last."""
    cdef readonly CommitLog log
    """The master's log."""
    cdef readonly int64_t frame_bytes
    """Most bytes of the log in a frame."""
    cdef readonly bint logged_in
    """Whether a login was accepted, or none is needed."""
    cdef readonly bint repairs
    """Whether the other end began with REPAIR: no slave, but one that asks for records."""
    cdef object login           # an HaLogin; None: none is needed
    cdef object challenge       # which this slave has to sign
    cdef bint asked             # for a challenge
    cdef bint plain             # RocketMQ 4.9's frames
    cdef bint asks              # read() and send() have something to do
    cdef bint watched           # epoll reports when the socket takes more bytes
    cdef int fd
    cdef int error
    cdef int64_t sent           # bytes of this turn
    cdef Segment segment        # which has `next`
    cdef bytes head_bytes       # `head` is in it, or in `head_buffer`
    cdef const uint8_t *head    # what is not sent of the current frame
    cdef int64_t head_left
    cdef const uint8_t *body
    cdef int64_t body_left
    cdef uint8_t[HEAD_MAX] head_buffer
    cdef uint8_t[INPUT_SIZE] input
    cdef int64_t used           # bytes of a login or a report that is not complete
    cdef Mark *marks            # a ring
    cdef int64_t first_mark
    cdef int64_t mark_count

    cdef Outcome receive(self, double now) noexcept nogil
    cdef Outcome send_log(self, int64_t end, double now) noexcept nogil
    cdef bint take_reports(self) noexcept nogil
    cdef bint has_segment(self) noexcept nogil
    cdef void begin_frame(self, int64_t size, double now) noexcept nogil
    cdef void put_head(self, int64_t size) noexcept nogil
    cdef int take_input(self) except -1
    cdef bytes answer_ask(self, bytes rest)
    cdef int begin(self, int64_t offset) except -1
    cdef int add_frame(self, int64_t end, double now) except -1
    cdef void forget_marks(self) noexcept nogil
