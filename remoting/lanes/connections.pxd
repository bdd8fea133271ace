from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from congreve.remoting.lanes.byte_buffer cimport ByteBuffer

cdef enum:
    BLOCK = 1024        # connections in one piece of memory, which never moves
    BLOCKS_MAX = 1024


# One connection. Only the lane's thread changes it; the loop reads `id`, `received` and `unsent`.
cdef struct LaneConnection:
    int fd                      # -1: closed, and free for the next
    int64_t id                  # its place, and above 32 bits how often that was used before
    uint32_t events             # that epoll looks for
    bint closing                # close when all is sent
    bint paused                 # the loop wants no more of it
    bint choked                 # its peer does not read: nothing is read either
    bint blocked                # its next frame found no room in the mailbox
    int32_t ordered             # frames at the loop that its next frames must not overtake
    uint8_t address[16]         # of its peer
    int32_t address_length      # 4 or 16
    int32_t port
    int64_t active_ms           # when bytes last came or left
    ByteBuffer stash            # the beginning of a frame
    int64_t stashed_ms          # when the frame began
    ByteBuffer out              # bytes that the socket did not take yet
    int64_t unsent              # their number
    int64_t mark                # the sink's own, 0 for a new connection
    void *of_sink               # the sink's own, NULL for a new connection
    int64_t received            # bytes of all WRITE letters so far


cdef class ConnectionTable:
    cdef LaneConnection *blocks[BLOCKS_MAX]
    cdef int32_t places         # that were used so far
    cdef int32_t *free_places
    cdef int32_t free_count
    cdef readonly int64_t unfinished_bytes
    """Bytes of memory that incomplete frames take."""

    # The connection at a place below `places`, open or not.
    cdef LaneConnection *at(self, int32_t place) noexcept nogil
    # The open connection with this id; NULL where there is none.
    cdef LaneConnection *find(self, int64_t id) noexcept nogil
    # The next connection of a listening socket; NULL and errno where there is none, or no memory.
    cdef LaneConnection *accept(self, int listener, int64_t now_ms) noexcept nogil
    cdef LaneConnection *free_place(self) noexcept nogil
    # Closes the socket and frees what the connection holds.
    cdef void close(self, LaneConnection *connection) noexcept nogil
    # Keeps the beginning of a frame; it may lie in the stash already. False without memory.
    cdef bint stash(self, LaneConnection *connection, const uint8_t *data,
                    int64_t length) noexcept nogil
    # Where that beginning is, for more bytes behind it: in `input`, which has `room` bytes, or in
    # the stash, whose room it sets.
    cdef uint8_t *unstash(self, LaneConnection *connection, uint8_t *input,
                          int64_t *room) noexcept nogil
    # Sends bytes, or keeps those that the socket does not take now; errno where that fails.
    cdef int send(self, LaneConnection *connection, const uint8_t *data,
                  int64_t length) noexcept nogil
    # Sends what was kept; errno where that fails.
    cdef int send_kept(self, LaneConnection *connection) noexcept nogil
    # The connection with the largest stash; NULL where none has one.
    cdef LaneConnection *largest(self) noexcept nogil
    # Frees the stash.
    cdef void drop_stash(self, LaneConnection *connection) noexcept nogil
