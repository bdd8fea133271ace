"""The event loop's interface to a lane: reads its mailbox entries, and posts entries to it."""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free

from congreve.base.atomic cimport load_relaxed
from congreve.remoting.lanes cimport entry_kinds
from congreve.remoting.lanes.connections cimport LaneConnection
from congreve.remoting.lanes.mailbox cimport MailboxEntry

import enum

cdef enum:
    # In one turn of the loop: the handlers of so many frames stay below a millisecond.
    ENTRIES_MAX = 32


class Kind(enum.IntEnum):
    """Kinds of mailbox entries from a lane to the event loop."""

    OPENED = entry_kinds.OPENED
    """data: the packed address, number: the port, above its 16 bits the listener's place."""
    FRAME = entry_kinds.FRAME
    """data: a whole frame; number: 1 where handled() must follow, and 2 if it is of a call of
    HTTP/2."""
    CLOSED = entry_kinds.CLOSED
    """number: the errno, 0 if the peer or the loop closed the connection."""
    UNWRITABLE = entry_kinds.UNWRITABLE
    """Too many bytes are unsent, because the peer does not read."""
    WRITABLE = entry_kinds.WRITABLE
    """The peer reads again."""
    UNFRAMEABLE = entry_kinds.UNFRAMEABLE
    """data: the first bytes of invalid input; the lane stops reading the connection."""
    CUT_LATE = entry_kinds.CUT_LATE
    """A frame was not complete in time; number: its bytes received. CLOSED follows."""
    CUT_LARGE = entry_kinds.CUT_LARGE
    """Incomplete frames took too much memory; number: bytes of this one. CLOSED follows."""
    CUT_SILENT = entry_kinds.CUT_SILENT
    """The first frame was not complete in time. CLOSED follows."""
    CUT_HANDSHAKE = entry_kinds.CUT_HANDSHAKE
    """The handshake of TLS did not end in time. CLOSED follows."""
    CUT_PLAIN = entry_kinds.CUT_PLAIN
    """The connection is not encrypted, but has to be. CLOSED follows."""
    HANDED_OVER = entry_kinds.HANDED_OVER
    """The loop decrypts the connection. number: its socket, data: the other end of a pair, as an
    int, from which the lane reads what the loop has decrypted."""
    FENCED = entry_kinds.FENCED
    """The lane has passed a fence; number: the number given to fence()."""
    CALL = entry_kinds.CALL
    """A message of a call of HTTP/2; number: its stream, data: metadata and message (call.py)."""
    CALL_CLOSED = entry_kinds.CALL_CLOSED
    """The peer sends no more messages of the call; number: its stream."""
    CALL_ENDED = entry_kinds.CALL_ENDED
    """The peer has cancelled a call that was not answered; number: its stream."""
    CALL_ANSWERED = entry_kinds.CALL_ANSWERED
    """A frame has answered a call; number: its stream, data: what the codec says about it."""
    OF_SINK = entry_kinds.OF_SINK
    """The sink's entries have this kind and higher ones."""


@cython.final
cdef class LaneHandle:
    """The event loop's end of a lane; an id names a connection."""

    def __cinit__(self, Mailbox to_loop not None, Mailbox to_lane not None,
                  ConnectionTable connections not None):
        self.to_loop, self.to_lane, self.connections = to_loop, to_lane, connections

    @property
    def event_fd(self):
        """An eventfd that is readable when take_entries() has entries."""
        return self.to_loop.event_fd

    @property
    def unfinished_bytes(self):
        """Bytes of memory that incomplete frames take."""
        return self.connections.unfinished_bytes

    def take_entries(self):
        """Some mailbox entries, oldest first: (kind, connection, data, number)."""
        cdef MailboxEntry[ENTRIES_MAX] taken
        cdef bint refused = False
        cdef int64_t i
        cdef int64_t count = self.to_loop.take(taken, ENTRIES_MAX, &refused)
        found = []
        for i in range(count):
            data = PyBytes_FromStringAndSize(<const char *> taken[i].data, taken[i].size)
            free(taken[i].data)
            found.append((taken[i].kind, taken[i].connection, data, taken[i].number))
        if refused:
            self.to_lane.post(entry_kinds.ROOM, -1, NULL, 0, 0, True)
        return found

    def write(self, int64_t connection, data):
        """Send whole frames. Raises MemoryError."""
        cdef const uint8_t[::1] view = data
        if not view.shape[0]:
            return
        if not self.to_lane.post(entry_kinds.WRITE, connection, &view[0], view.shape[0], 0, True):
            raise MemoryError(f"no memory for an answer of {view.shape[0]} bytes")

    def reply(self, int64_t connection, int32_t stream, data):
        """Answer a call of HTTP/2 with `data`, as call.py lays it out. Raises MemoryError."""
        cdef const uint8_t[::1] view = data
        if not self.to_lane.post(
            entry_kinds.REPLY, connection, &view[0], view.shape[0], stream, True
        ):
            raise MemoryError(f"no memory for a reply of {view.shape[0]} bytes")

    def unsent(self, int64_t connection, int64_t written):
        """Bytes that the peer has not read yet, of the loop's `written` ones and the sink's."""
        cdef LaneConnection *found = self.connections.at(<int32_t> (connection & 0x7FFFFFFF))
        if load_relaxed(&found.id) != connection:
            return 0
        return load_relaxed(&found.unsent) + written - load_relaxed(&found.received)

    def close_connection(self, int64_t connection, bint at_once):
        """Close a connection, at once or when all is sent; a CLOSED entry follows."""
        self.post(entry_kinds.ABORT if at_once else entry_kinds.CLOSE, connection)

    def set_reading(self, int64_t connection, bint wanted):
        """Pause or resume reading."""
        self.post(entry_kinds.RESUME if wanted else entry_kinds.PAUSE, connection)

    def handled(self, int64_t connection):
        """The loop has handled an ordered frame: the lane serves the frames after it."""
        self.post(entry_kinds.HANDLED, connection)

    def notify_writable(self, int64_t connection):
        """Ask for a WRITABLE entry when few bytes are unsent; until then the lane reads none."""
        self.post(entry_kinds.NOTIFY_WRITABLE, connection)

    def tell_sink(self, int64_t connection, int32_t kind, data):
        """Give the sink an entry about a connection, if it is still open. Raises MemoryError."""
        cdef const uint8_t[::1] view = data
        if not self.to_lane.post(kind, connection, &view[0], view.shape[0], 0, True):
            raise MemoryError(f"no memory for an entry of {view.shape[0]} bytes")

    def fence(self, int32_t number):
        """Ask for a FENCED entry, which follows all but late entries about the current work."""
        self.to_lane.post(entry_kinds.FENCE, -1, NULL, 0, number, True)

    def adopt(self, int descriptor, bytes peer not None, int32_t listener):
        """Serve an open socket, which belongs to the lane from now on. Its bytes are frames.

        `peer` is the client's packed address and its port in two bytes. Raises MemoryError.
        """
        if not self.to_lane.post(
            entry_kinds.ADOPT, listener, peer, len(peer), descriptor, True
        ):
            raise MemoryError("no memory for an entry to a lane")

    def stop_listening(self):
        """Stop accepting connections."""
        self.post(entry_kinds.STOP_LISTENING, -1)

    def stop(self):
        """Make the lane's run() return; connections stay open until the lane is freed."""
        self.post(entry_kinds.STOP, -1)

    cdef int post(self, int32_t kind, int64_t connection) except -1:
        if not self.to_lane.post(kind, connection, NULL, 0, 0, True):
            raise MemoryError("no memory for an entry to a lane")
        return 0
