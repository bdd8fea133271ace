from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from congreve.remoting.lanes.byte_buffer cimport ByteBuffer
from congreve.remoting.lanes.mailbox cimport MailboxEntry

cdef enum:
    BLOCK = 1024        # connections in one piece of memory, which never moves
    BLOCKS_MAX = 1024
    PIECE = 32 * 1024   # kept bytes sent at once; other connections are served between two pieces


# One connection. Only the lane's thread changes it; the loop reads `id`, `received` and `unsent`.
cdef struct LaneConnection:
    int fd                      # -1: closed, the place is free
    int64_t id                  # its place; the upper 32 bits count the place's earlier uses
    uint32_t events             # that epoll reports
    bint closing                # it is closed when all is sent
    bint paused                 # the loop has paused reading
    bint choked                 # its peer does not read, so the lane does not read either
    bint blocked                # the mailbox had no room for its next frame
    bint resting                # its requests were refused, so it is not read for a moment
    int32_t ordered             # frames at the loop that later frames must not overtake
    uint8_t address[16]         # of the peer
    int32_t address_length      # 4 or 16
    int32_t port
    int64_t active_ms           # when bytes were last received or sent
    ByteBuffer stash            # the beginning of a frame
    int64_t stashed_ms          # when the frame's first bytes arrived
    ByteBuffer out              # bytes that the socket did not take yet
    int64_t unsent              # the number of these bytes
    int64_t mark                # set by the sink, 0 for a new connection
    void *of_sink               # set by the sink, NULL for a new connection
    int64_t received            # bytes of all WRITE entries so far


# Whether no more of the connection's bytes may be read now.
cdef inline bint may_not_read(const LaneConnection *connection) noexcept nogil:
    return (connection.paused or connection.choked or connection.blocked or connection.resting
            or connection.ordered)


cdef class ConnectionTable:
    cdef LaneConnection *blocks[BLOCKS_MAX]
    cdef int32_t places         # places in use, and places that were
    cdef int32_t *free_places
    cdef int32_t free_count
    cdef readonly int64_t unfinished_bytes
    """Bytes of memory that incomplete frames take."""

    # Returns the connection at a place below `places`, open or not.
    cdef LaneConnection *at(self, int32_t place) noexcept nogil
    # Returns the open connection with this id; NULL if there is none.
    cdef LaneConnection *find(self, int64_t id) noexcept nogil
    # Accepts a connection of a listening socket; NULL and errno if there is none, or no memory.
    cdef LaneConnection *accept(self, int listener, int64_t now_ms) noexcept nogil
    cdef LaneConnection *free_place(self) noexcept nogil
    # Closes the socket and frees what the connection holds.
    cdef void close(self, LaneConnection *connection) noexcept nogil
    # Keeps the beginning of a frame, which may be in the stash already. False without memory.
    cdef bint stash(self, LaneConnection *connection, const uint8_t *data,
                    int64_t length) noexcept nogil
    # Prepares to read the rest of a frame: returns the buffer that begins with the kept bytes, and
    # sets `room`. The buffer is `input`, which has `room` bytes, or the stash.
    cdef uint8_t *unstash(self, LaneConnection *connection, uint8_t *input,
                          int64_t *room) noexcept nogil
    # Sends bytes, and keeps those that the socket does not accept now. Returns 0 or the errno.
    cdef int send(self, LaneConnection *connection, const uint8_t *data,
                  int64_t length) noexcept nogil
    # Keeps the bytes of an entry to send, in the entry's own memory. False for PIECE or less, and
    # when bytes are unsent.
    cdef bint keep(self, LaneConnection *connection, MailboxEntry *entry) noexcept nogil
    # Sends at most PIECE of the kept bytes. Returns 0 or the errno.
    cdef int send_kept(self, LaneConnection *connection) noexcept nogil
    # Returns the connection with the largest stash; NULL if all are empty.
    cdef LaneConnection *largest(self) noexcept nogil
    # Frees the stash.
    cdef void drop_stash(self, LaneConnection *connection) noexcept nogil
