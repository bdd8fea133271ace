from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.base.byte_buffer cimport ByteBuffer
from congreve.base.slices cimport Slice
from congreve.broker.pop.lanes.table cimport LanePop, LanePopTable
from congreve.engine.pop.changes cimport Outcome as Change
from congreve.engine.pop.in_flight cimport InFlight
from congreve.engine.pop.state cimport Window
from congreve.engine.read.gather cimport Gather
from congreve.remoting.wire.fast_headers cimport PopHeader
from congreve.remoting.wire.frame cimport Frame, Header

cdef enum:
    MESSAGES_MAX = 32           # of one pop
    ENTRY_MAX = 48              # bytes of a queue in the text of offsets, without its offsets
    OFFSET_MAX = 20             # bytes of one of them, with what follows it

# What became of a pop.
cdef enum Outcome:
    SERVED
    EMPTY                       # there is nothing for it
    FOR_LOOP                    # only the event loop can tell

# What a pop found in one queue.
cdef enum Found:
    TAKEN
    NOTHING
    UNORDINARY                  # the event loop has to look


cdef class LanePops:
    cdef readonly LanePopTable table
    """The pop plans of this lane."""
    cdef public int64_t turn
    """The next pop begins with this one of its queues, modulo their number."""
    cdef InFlight in_flight
    cdef bytes broker_name
    cdef Slice broker           # the same
    cdef Gather gather
    cdef ByteBuffer answers     # of the current chunk
    cdef int32_t answered       # pops of the current chunk
    cdef bint due_sooner        # a message is due before the event loop looks

    # The current pop; `known` is NULL if the event loop has to serve it.
    cdef LanePop *known
    cdef PopHeader pop
    cdef int64_t now_ms
    cdef int32_t count          # messages
    cdef int64_t bytes
    cdef int64_t left
    cdef int64_t coming_again   # messages that only the event loop takes
    cdef ByteBuffer body
    cdef int64_t[MESSAGES_MAX] offsets
    cdef uint8_t[MESSAGES_MAX * ENTRY_MAX] starts
    cdef uint8_t *starts_end
    cdef uint8_t[MESSAGES_MAX * (ENTRY_MAX + OFFSET_MAX)] places
    cdef uint8_t *places_end

    cdef void begin_chunk(self) noexcept nogil
    # Serves a pop whose header is the current one.
    cdef Outcome serve(self, const Frame *frame, const Header *header) noexcept nogil
    # Makes this the current pop. False, and `known` is NULL: the event loop has to serve it.
    cdef bint read(self, const Header *header) noexcept nogil
    # What the pop that was served has taken, as its answer says (msgOffsetInfo).
    cdef Slice taken_places(self) noexcept nogil

    # How long the current pop may wait, in ms.
    cdef int64_t time_left(self) noexcept nogil
    # Answers a pop that gets nothing.
    cdef bint answer_empty(self, const Frame *frame, const Header *header) noexcept nogil

    cdef Outcome take_all(self, LanePop *known) noexcept nogil
    cdef Found take_from(self, LanePop *known, int32_t queue) noexcept nogil
    cdef Change take(self, Window *window, int32_t count, int64_t upto) noexcept nogil
    cdef int32_t read_offsets(self) noexcept nogil
    # Puts the messages found into the body, which does not count them yet; their bytes, -1 if only
    # the event loop can.
    cdef int64_t put_found(self, int32_t kind, int32_t count) noexcept nogil
    cdef void put_taken(self, int32_t kind, int32_t queue_id, int32_t count,
                        int64_t size) noexcept nogil
    cdef bint look(self, LanePop *known, int32_t queue, int64_t offset,
                   int32_t most) noexcept nogil
    cdef bint look_with_gil(self, LanePop *known, int32_t queue, int64_t offset,
                            int32_t most) noexcept with gil
    cdef int map_file(self, LanePop *known, int32_t queue) except -1
    cdef int64_t left_to_loop(self, const LanePop *known) noexcept nogil
    cdef int32_t queue_in_turn(self, const LanePop *known, int32_t place) noexcept nogil
    cdef int64_t next_of(self, const Window *window) noexcept nogil
    cdef bint answer(self, const Frame *frame, const Header *header, int32_t code,
                     Slice remark) noexcept nogil
