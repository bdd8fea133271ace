"""The connections of one lane, for compiled code (connections.pxd)."""

cimport cython
from libc.errno cimport EAGAIN, EINTR, ENOMEM, errno
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memmove

from congreve.base.atomic cimport store_relaxed
from congreve.base.byte_buffer cimport append_bytes, make_room, release
from congreve.remoting.lanes cimport entry_kinds, sockets
from congreve.remoting.lanes.http2 cimport Http2Sessions

cdef enum:
    TLS_HANDSHAKE = 0x16        # the first byte of every connection with TLS

# A place that is used a thousand times a second comes to the end of them after twelve days.
cdef int64_t IDS = (<int64_t> 1 << 62) - 1


cdef uint32_t wanted_events(const LaneConnection *connection) noexcept nogil:
    cdef uint32_t events = 0 if may_not_read(connection) else sockets.EPOLLIN
    if has_output(connection) or (events and connection.again):
        events |= sockets.EPOLLOUT
    return events


cdef inline void count_unsent(LaneConnection *connection) noexcept nogil:
    cdef int64_t unsent = connection.out.used - connection.out.at
    if connection.http2 != NULL:
        unsent += connection.http2.unsent
    store_relaxed(&connection.unsent, unsent)


cpdef int64_t next_id(int64_t id) noexcept nogil:
    """The id of the next connection at the place of `id`; ids stay below those of other events."""
    return (id + (<int64_t> 1 << 32)) & IDS


@cython.final
cdef class ConnectionTable:
    """The connections of one lane; an id names one connection and no later one.

    The seam for transports (lane.pyx): open() recognises a new one, which moves its bytes in
    receive() and transmit().
    """

    def __cinit__(self, TlsSessions tls, double idle_s, double first_frame_s,
                  double frame_timeout_s, double frame_bytes_per_s, Http2Sessions http2=None):
        self.tls, self.http2 = tls, http2
        if http2 is not None:
            self.output = <uint8_t *> malloc(OUTPUT_SIZE)
            if self.output == NULL:
                raise MemoryError()
        self.idle_ms = <int64_t> (idle_s * 1000)
        self.first_frame_ms = <int64_t> (first_frame_s * 1000)
        self.frame_timeout_ms = <int64_t> (frame_timeout_s * 1000)
        self.frame_bytes_a_ms = max(<int64_t> (frame_bytes_per_s / 1000), 1)

    def __dealloc__(self):
        cdef int32_t place
        self.close_all()
        for place in range(0, self.places, <int32_t> BLOCK):
            free(self.blocks[place // BLOCK])
        free(self.free_places)
        free(self.output)

    cdef LaneConnection *at(self, int32_t place) noexcept nogil:
        return &self.blocks[place // BLOCK][place % BLOCK]

    cdef LaneConnection *find(self, int64_t id) noexcept nogil:
        cdef int32_t place = <int32_t> (id & 0x7FFFFFFF)
        cdef LaneConnection *found
        if id < 0 or place >= self.places:
            return NULL
        found = self.at(place)
        return found if found.id == id and found.fd >= 0 else NULL

    cdef LaneConnection *accept(self, int listener, int64_t now_ms) noexcept nogil:
        cdef uint8_t[16] address
        cdef int32_t length = 0, port = 0
        cdef LaneConnection *connection
        cdef int fd = sockets.accept_peer(listener, address, &length, &port)
        if fd < 0:
            return NULL
        connection = self.adopt(fd, address, length, port, now_ms)
        if connection != NULL:
            connection.undecided = self.tls is not None
            connection.unframed = self.http2 is not None
        return connection

    cdef LaneConnection *adopt(self, int fd, const uint8_t *address, int32_t length, int32_t port,
                               int64_t now_ms) noexcept nogil:
        cdef LaneConnection *connection = self.free_place()
        if connection == NULL:
            sockets.close_fd(fd)
            return NULL
        # RocketMQ's clients fail a request at once if its connection is reset. If it is closed,
        # they wait until its time is over: 3 s for a send, 30 s for a pull.
        sockets.reset_at_exit(fd, True)
        connection.fd = fd
        connection.port = port
        connection.address_length = length
        memcpy(connection.address, address, length)
        connection.active_ms = connection.accepted_ms = now_ms
        connection.opened_ms = 0
        connection.undecided = connection.unframed = False
        connection.mark = connection.last_late = 0
        store_relaxed(&connection.received, 0)
        connection.of_sink = NULL
        return connection

    cdef Opening open(self, LaneConnection *connection, int64_t now_ms) noexcept nogil:
        cdef uint8_t first
        cdef Py_ssize_t got = sockets.recv(connection.fd, &first, 1, sockets.MSG_PEEK)
        if got < 0 and (errno == EAGAIN or errno == EINTR):
            return Opening.WAITING
        if got <= 0:
            return Opening.ENDED
        connection.undecided = False
        if first != TLS_HANDSHAKE:
            return Opening.REFUSED if self.tls.enforcing else Opening.READY
        if self.tls.by_loop:
            return Opening.HANDED_OVER
        connection.opened_ms = now_ms
        connection.session = self.tls.begin(connection.fd)
        return Opening.ENDED if connection.session == NULL else Opening.READY

    cdef LaneConnection *free_place(self) noexcept nogil:
        cdef int32_t block = self.places // BLOCK
        cdef LaneConnection *connection
        cdef int32_t *free_places
        if self.free_count:
            self.free_count -= 1
            connection = self.at(self.free_places[self.free_count])
            store_relaxed(&connection.id, next_id(connection.id))
            return connection
        if block == BLOCKS_MAX:
            return NULL
        if self.blocks[block] == NULL:
            free_places = <int32_t *> realloc(
                self.free_places, (block + 1) * BLOCK * sizeof(int32_t)
            )
            if free_places == NULL:
                return NULL
            self.free_places = free_places
            self.blocks[block] = <LaneConnection *> calloc(BLOCK, sizeof(LaneConnection))
            if self.blocks[block] == NULL:
                return NULL
        connection = self.at(self.places)
        store_relaxed(&connection.id, self.places)
        self.places += 1
        return connection

    cdef void close(self, LaneConnection *connection, bint clean) noexcept nogil:
        if connection.http2 != NULL:
            self.http2.end(connection.http2)
            connection.http2 = NULL
            self.unfinished_bytes -= connection.held
            connection.held = 0
        if connection.session != NULL:
            self.tls.end(connection.session, clean)
            connection.session = NULL
        sockets.close_fd(self.detach(connection))

    cdef void close_all(self) noexcept nogil:
        cdef LaneConnection *connection
        cdef int32_t place
        for place in range(self.places):
            connection = self.at(place)
            if connection.fd >= 0:
                self.close(connection, False)

    cdef int detach(self, LaneConnection *connection) noexcept nogil:
        cdef int fd = connection.fd
        sockets.reset_at_exit(fd, False)  # what is written reaches the peer
        connection.fd = -1
        connection.undecided = connection.again = False
        self.drop_pending(connection)
        release(&connection.out)
        connection.ordered = 0
        store_relaxed(&connection.unsent, 0)
        connection.closing = connection.paused = connection.resting = False
        connection.peer_slow = connection.mailbox_full = connection.without_room = False
        self.free_places[self.free_count] = <int32_t> (connection.id & 0x7FFFFFFF)
        self.free_count += 1
        return fd

    cdef int64_t receive(self, LaneConnection *connection, uint8_t *data,
                         int64_t size) noexcept nogil:
        cdef Py_ssize_t got
        if connection.session != NULL:
            return self.tls.receive(connection.session, data, size, &connection.again)
        got = sockets.recv(connection.fd, data, size, 0)
        return got if got >= 0 else -errno

    cdef int64_t transmit(self, LaneConnection *connection, const uint8_t *data,
                          int64_t length) noexcept nogil:
        cdef Py_ssize_t step
        if connection.session != NULL:
            return self.tls.send(connection.session, data, length)
        step = sockets.send(connection.fd, data, length, sockets.MSG_NOSIGNAL)
        return step if step >= 0 else -errno

    cdef int32_t lateness(self, LaneConnection *connection, int64_t now_ms) noexcept nogil:
        cdef bint blocked = may_not_serve(connection)
        cdef int64_t more_ms = (connection.pending.used + connection.held) // self.frame_bytes_a_ms
        if connection.fd < 0:
            return entry_kinds.OPENED
        if connection.http2 != NULL:
            connection.pending_since_ms = now_ms  # whole frames are pending
            if connection.http2.partial_since_ms and (
                now_ms - connection.http2.partial_since_ms > self.frame_timeout_ms + more_ms
            ):
                return entry_kinds.CUT_LATE
        if blocked or not connection.events & sockets.EPOLLIN:
            connection.pending_since_ms = now_ms  # while reading is paused, no frame is late
            if connection.accepted_ms:
                connection.accepted_ms = now_ms
        if connection.pending.used and (
            now_ms - connection.pending_since_ms > self.frame_timeout_ms + more_ms
        ):
            return entry_kinds.CUT_LATE
        if connection.accepted_ms and (
            now_ms - connection.accepted_ms > self.first_frame_ms + more_ms
        ):
            return entry_kinds.CUT_SILENT
        if (
            connection.session != NULL
            and connection.opened_ms
            and now_ms - connection.opened_ms > self.tls.handshake_ms
        ):
            if not self.tls.is_ready(connection.session):
                return entry_kinds.CUT_HANDSHAKE
            connection.opened_ms = 0
        if now_ms - connection.active_ms > self.idle_ms:
            return entry_kinds.CLOSED
        return entry_kinds.OPENED

    cdef bint keep_pending(self, LaneConnection *connection, const uint8_t *data,
                           int64_t length) noexcept nogil:
        cdef ByteBuffer *pending = &connection.pending
        cdef int64_t before = pending.size
        cdef bint fits = True
        if pending.size and pending.data <= data < pending.data + pending.size:
            memmove(pending.data, data, length)
        else:
            fits = make_room(pending, length)
            if fits:
                memcpy(pending.data, data, length)
        # A large frame is read behind its beginning: the buffer grows by a quarter of the bytes
        # received, not to the size that the frame claims.
        if fits and length > COPIED_MAX and length == pending.size:
            fits = make_room(pending, length + max(length // 4, <int64_t> COPIED_MAX))
        pending.used = length
        self.unfinished_bytes += pending.size - before
        return fits

    cdef uint8_t *buffer_for(self, LaneConnection *connection, uint8_t *input,
                             int64_t *size) noexcept nogil:
        cdef ByteBuffer *pending = &connection.pending
        if has_large_frame(connection):
            size[0] = pending.size
            return pending.data
        if pending.used:
            memcpy(input, pending.data, pending.used)
        return input

    cdef bint begin_http2(self, LaneConnection *connection) noexcept nogil:
        connection.http2 = self.http2.begin(connection.id)
        return connection.http2 != NULL

    cdef int receive_http2(self, LaneConnection *connection, const uint8_t *data, int64_t length,
                           int64_t now_ms, ByteBuffer *frames) noexcept nogil:
        cdef int error = self.http2.receive(connection.http2, data, length, now_ms, frames)
        self.count_held(connection)
        return error

    cdef void count_held(self, LaneConnection *connection) noexcept nogil:
        self.unfinished_bytes += connection.http2.held - connection.held
        connection.held = connection.http2.held

    cdef bint keep_frames(self, LaneConnection *connection,
                          const ByteBuffer *frames) noexcept nogil:
        cdef int64_t before = connection.pending.size
        cdef bint fits = append_bytes(&connection.pending, frames.data, frames.used)
        self.unfinished_bytes += connection.pending.size - before
        return fits

    cdef int flush_http2(self, LaneConnection *connection) noexcept nogil:
        cdef int64_t length = 1
        cdef int error = 0
        if not may_not_serve(connection):
            self.http2.open_window(connection.http2)
        while length > 0 and not error and not has_output(connection):
            length = self.http2.next_bytes(connection.http2, self.output, OUTPUT_SIZE)
            if length > 0:
                error = self.write(connection, self.output, length)
        count_unsent(connection)
        return <int> -length if length < 0 else error

    cdef int send(self, LaneConnection *connection, const uint8_t *data,
                  int64_t length) noexcept nogil:
        cdef int error
        if connection.http2 == NULL:
            return self.write(connection, data, length)
        error = self.http2.answer(connection.http2, data, length)
        return error if error else self.flush_http2(connection)

    cdef int write(self, LaneConnection *connection, const uint8_t *data,
                   int64_t length) noexcept nogil:
        cdef int64_t step
        while length and not has_output(connection):
            step = self.transmit(connection, data, length)
            if step >= 0:
                data += step
                length -= step
            elif step == -EAGAIN:
                break
            elif step != -EINTR:
                return <int> -step
        if length and not append_bytes(&connection.out, data, length):
            return ENOMEM
        count_unsent(connection)
        return 0

    cdef bint keep(self, LaneConnection *connection, MailboxEntry *entry) noexcept nogil:
        if entry.size <= PIECE or connection.unsent or connection.http2 != NULL:
            return False
        release(&connection.out)
        connection.out.data, entry.data = entry.data, NULL
        connection.out.used = connection.out.size = entry.size
        store_relaxed(&connection.unsent, entry.size)
        return True

    cdef int send_kept(self, LaneConnection *connection) noexcept nogil:
        cdef ByteBuffer *out = &connection.out
        cdef int64_t step = self.transmit(
            connection, out.data + out.at, min(out.used - out.at, <int64_t> PIECE)
        )
        if step >= 0:
            out.at += step
        elif step != -EAGAIN and step != -EINTR:
            return <int> -step
        if not has_output(connection):
            release(out)
            if connection.http2 != NULL:
                return self.flush_http2(connection)
        count_unsent(connection)
        return 0

    cdef LaneConnection *largest(self) noexcept nogil:
        cdef LaneConnection *found = NULL
        cdef LaneConnection *connection
        cdef int32_t place
        for place in range(self.places):
            connection = self.at(place)
            if connection.pending.size + connection.held and (
                found == NULL
                or connection.pending.size + connection.held > found.pending.size + found.held
            ):
                found = connection
        return found

    cdef void drop_pending(self, LaneConnection *connection) noexcept nogil:
        self.unfinished_bytes -= connection.pending.size
        release(&connection.pending)


@cython.final
cdef class Listeners:
    """Listening sockets, which epoll reports under `first_id` and the ids after it."""

    def __cinit__(self, int epoll, descriptors not None, uint64_t first_id):
        if len(descriptors) > LISTENERS_MAX:
            raise ValueError(f"{len(descriptors)} listening sockets: {LISTENERS_MAX} at most")
        self.epoll, self.first_id = epoll, first_id
        for descriptor in descriptors:
            self.descriptors[self.count] = descriptor
            self.count += 1

    cdef void listen(self, bint wanted) noexcept nogil:
        cdef int what = sockets.EPOLL_CTL_ADD if wanted else sockets.EPOLL_CTL_DEL
        cdef int i
        if wanted == self.listening:
            return
        self.listening = wanted
        for i in range(self.count):
            sockets.epoll_set(self.epoll, what, self.descriptors[i], sockets.EPOLLIN,
                              self.first_id + <uint64_t> i)
