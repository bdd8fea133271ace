from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from congreve.base.byte_buffer cimport ByteBuffer
from congreve.remoting.lanes.http2 cimport Http2Session, Http2Sessions
from congreve.remoting.lanes.mailbox cimport MailboxEntry
from congreve.remoting.tls.sessions cimport TlsSessions

cdef enum:
    BLOCK = 1024        # connections in one piece of memory, which never moves
    BLOCKS_MAX = 1024
    LISTENERS_MAX = 32
    COPIED_MAX = 32 * 1024  # pending bytes that may be copied in front of the next ones
    PIECE = 32 * 1024   # kept bytes sent at once; other connections are served between two pieces
    OUTPUT_SIZE = 64 * 1024     # bytes of HTTP/2 that are sent at once


# One connection. Only the lane's thread changes it; the loop reads `id`, `received` and `unsent`.
cdef struct LaneConnection:
    int fd                      # -1: closed, the place is free
    int64_t id                  # its place; bits 32 to 61 count the place's earlier uses
    uint32_t events             # that epoll reports
    bint told                   # the loop knows of it
    bint undecided              # its first byte will tell whether it is encrypted
    void *session               # of TLS; NULL: it is not encrypted
    int64_t accepted_ms         # when it was accepted; 0: its first frame has come
    int64_t opened_ms           # when its handshake began; 0: it is complete, or none began
    bint again                  # the session may have bytes that epoll does not report
    bint unframed               # its first bytes will tell whether it is HTTP/2
    Http2Session *http2         # NULL: its bytes are frames
    int64_t held                # bytes of incomplete messages that the session has
    bint closing                # it is closed when all is sent
    bint paused                 # the loop has paused reading
    bint peer_slow              # its peer does not read, so the lane does not read either
    bint mailbox_full           # the mailbox had no room for its next frame
    bint resting                # its requests were refused, so it is not read for a moment
    bint without_room           # its frame waits until others leave memory
    int32_t ordered             # frames at the loop that later frames must not overtake
    int64_t last_late           # its last late entry for the loop (mailbox.pxd)
    uint8_t address[16]         # of the peer
    int32_t address_length      # 4 or 16
    int32_t port
    int32_t listener            # the place of the listening socket that has accepted it
    int64_t active_ms           # when bytes were last received or sent
    ByteBuffer pending          # bytes that came and are not served: the beginning of a frame
    int64_t pending_since_ms    # when the frame's first bytes arrived
    ByteBuffer out              # bytes that the socket did not take yet
    int64_t unsent              # the number of these bytes
    int64_t mark                # set by the sink, 0 for a new connection
    void *of_sink               # set by the sink, NULL for a new connection
    int64_t received            # bytes of all WRITE entries so far


# Whether no more frames of the connection may be served now.
cdef inline bint may_not_serve(const LaneConnection *connection) noexcept nogil:
    return (connection.paused or connection.peer_slow or connection.mailbox_full
            or connection.resting or connection.without_room or connection.ordered)


# Whether no more of the connection's bytes may be read now. What HTTP/2 says about streams is read
# while frames wait.
cdef inline bint may_not_read(const LaneConnection *connection) noexcept nogil:
    return connection.resting if connection.http2 != NULL else may_not_serve(connection)


# Whether bytes wait that the socket did not take.
cdef inline bint has_output(const LaneConnection *connection) noexcept nogil:
    return connection.out.at < connection.out.used


# Whether the connection reads a frame into its pending bytes.
cdef inline bint has_large_frame(const LaneConnection *connection) noexcept nogil:
    return connection.http2 == NULL and connection.pending.used > COPIED_MAX


# What the first byte of a connection says.
cdef enum Opening:
    READY                       # the lane serves it
    WAITING                     # it did not arrive
    HANDED_OVER                 # it is encrypted, and the loop decrypts it
    REFUSED                     # it is not encrypted, but has to be
    ENDED                       # the connection has ended; errno


cpdef int64_t next_id(int64_t id) noexcept nogil

# The events that epoll has to report for a connection.
cdef uint32_t wanted_events(const LaneConnection *connection) noexcept nogil


cdef class ConnectionTable:
    cdef TlsSessions tls        # None: no connection is encrypted
    cdef Http2Sessions http2    # None: all bytes are frames
    cdef uint8_t *output        # OUTPUT_SIZE bytes, for HTTP/2
    cdef int64_t idle_ms
    cdef int64_t first_frame_ms
    cdef int64_t frame_timeout_ms
    cdef int64_t frame_bytes_a_ms
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
    # Takes an open socket that does not block, whose bytes are frames, with the address of its
    # client; closes it and returns NULL without memory.
    cdef LaneConnection *adopt(self, int fd, const uint8_t *address, int32_t length, int32_t port,
                               int64_t now_ms) noexcept nogil
    cdef LaneConnection *free_place(self) noexcept nogil
    # Looks at the first byte of an undecided connection, and begins a session if it is encrypted.
    cdef Opening open(self, LaneConnection *connection, int64_t now_ms) noexcept nogil
    # The kind of entry for a connection that is late: CUT_LATE, CUT_SILENT, CUT_HANDSHAKE,
    # CLOSED if it is idle; OPENED if it stays.
    cdef int32_t lateness(self, LaneConnection *connection, int64_t now_ms) noexcept nogil
    # Closes the socket and frees what the connection holds. `clean`: without an error before.
    cdef void close(self, LaneConnection *connection, bint clean) noexcept nogil
    cdef void close_all(self) noexcept nogil
    # Frees the place of a connection, and returns its socket, which stays open.
    cdef int detach(self, LaneConnection *connection) noexcept nogil
    # Reads into `data`. Returns the number of bytes, 0 at the end, or the negative errno.
    cdef int64_t receive(self, LaneConnection *connection, uint8_t *data,
                         int64_t size) noexcept nogil
    # Writes what the socket accepts now. Returns the number of bytes, or the negative errno.
    cdef int64_t transmit(self, LaneConnection *connection, const uint8_t *data,
                          int64_t length) noexcept nogil
    # Keeps the beginning of a frame, which may be pending already. False without memory.
    cdef bint keep_pending(self, LaneConnection *connection, const uint8_t *data,
                           int64_t length) noexcept nogil
    # Prepares to read the rest of a frame: returns the buffer that begins with the kept bytes, and
    # sets `size`. The buffer is `input`, which has `size` bytes, or that of the pending bytes.
    cdef uint8_t *buffer_for(self, LaneConnection *connection, uint8_t *input,
                             int64_t *size) noexcept nogil
    # Sends whole frames, and keeps bytes that the socket does not accept now. Returns 0 or the
    # errno.
    cdef int send(self, LaneConnection *connection, const uint8_t *data,
                  int64_t length) noexcept nogil
    # Keeps the bytes of an entry to send, in the entry's own memory. False for PIECE or less, when
    # bytes are unsent, and for HTTP/2.
    cdef bint keep(self, LaneConnection *connection, MailboxEntry *entry) noexcept nogil
    # Begins a session of HTTP/2. False without memory.
    cdef bint begin_http2(self, LaneConnection *connection) noexcept nogil
    # Gives bytes to the session, and appends whole frames to `frames`. Returns 0 or the errno.
    cdef int receive_http2(self, LaneConnection *connection, const uint8_t *data, int64_t length,
                           int64_t now_ms, ByteBuffer *frames) noexcept nogil
    # Sends what the session has to send. Returns 0 or the errno.
    cdef int flush_http2(self, LaneConnection *connection) noexcept nogil
    cdef void count_held(self, LaneConnection *connection) noexcept nogil
    # Adds whole frames to those that wait. False without memory.
    cdef bint keep_frames(self, LaneConnection *connection,
                          const ByteBuffer *frames) noexcept nogil
    # Transmits bytes, and keeps those that the socket does not accept now. Returns 0 or the errno.
    cdef int write(self, LaneConnection *connection, const uint8_t *data,
                   int64_t length) noexcept nogil
    # Sends at most PIECE of the kept bytes. Returns 0 or the errno.
    cdef int send_kept(self, LaneConnection *connection) noexcept nogil
    # Returns the connection with the most bytes of incomplete frames; NULL if none has any.
    cdef LaneConnection *largest(self) noexcept nogil
    # Frees the pending bytes.
    cdef void drop_pending(self, LaneConnection *connection) noexcept nogil


cdef class Listeners:
    cdef int epoll
    cdef uint64_t first_id
    cdef int[LISTENERS_MAX] descriptors     # by their places
    cdef int count
    cdef bint listening

    # Accepts connections, or leaves them in the kernel's backlog.
    cdef void listen(self, bint wanted) noexcept nogil
