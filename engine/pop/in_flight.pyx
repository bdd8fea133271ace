"""Messages that pops have taken: which are out, until when, and the journal of all changes."""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, UINT32_MAX, int8_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memmove, memset

from congreve.base.byte_buffer cimport ByteBuffer, release
from congreve.base.cursor cimport load_i16, load_i32, load_i64
from congreve.base.pthread cimport (
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from congreve.base.slices cimport slice_of
from congreve.engine.pop.changes cimport (
    DONE,
    DROPPED_WINDOW,
    FULL,
    MOVED,
    NO_MEMORY,
    discard,
    drop,
    extend,
    give_back,
    repeat,
    reset,
    settle,
    settle_all,
    take,
)
from congreve.engine.pop.due_heap cimport give_due
from congreve.engine.pop.journal cimport DROPPED, WINDOW, Journal, entry_size, in_range
from congreve.engine.pop.snapshot cimport put_state
from congreve.engine.pop.state cimport Found, Out, Place, Window
from congreve.engine.pop.window cimport begin_of, out_from
from congreve.engine.pop.window_table cimport NAME_FIXED, add_window, put_name
from congreve.records.byte_table cimport key_of

import numpy

from congreve.engine.errors import PopFullError, PopJournalError
from congreve.engine.pop.results import Answer, Due
from congreve.records.message.topics import light_topic

cdef enum:
    # Bytes of an empty journal that stay reserved.
    JOURNAL_KEPT = 1 << 20
    NAME_MAX = 32767    # bytes of a group or topic in the journal
    # Bytes of a part of a snapshot, and of one window more. In base64 the parts continue each
    # other: all but the last have a multiple of ALIGNED.
    PART_SIZE = 192 << 10
    ALIGNED = 3
    # How many times the limits are out in a snapshot at most, whose windows are of different
    # moments, and while the journal is repeated on it.
    SNAPSHOT_TIMES = 2
    RESTORED_TIMES = 3

cdef object ANSWERS = tuple(Answer)


@cython.final
cdef class InFlight:
    """The windows of a store, the times at which their messages are due, and their journal.

    Counterpart: RocketMQ's PopBufferMergeService and PopReviveService. All changes are entries of
    take_journal(), which replay() reads after a restart.
    """

    def __cinit__(self, limits):
        pthread_mutex_init(&self.pops.mutex, NULL)
        self.limits = limits
        self.set_limits(1)
        self.pops.journal.settled_at = -1
        self.pops.look_ms = INT64_MAX
        self.windows = {}

    def __dealloc__(self):
        free(self.pops.heap.chunks)
        free(self.pops.windows.slots)
        release(&self.pops.journal.entries)
        release(&self.part.entries)
        pthread_mutex_destroy(&self.pops.mutex)

    @property
    def out(self):
        """Messages that are out, in all windows."""
        pthread_mutex_lock(&self.pops.mutex)
        cdef int64_t out = self.pops.out
        pthread_mutex_unlock(&self.pops.mutex)
        return out

    # --- windows

    def window(self, str group, str topic, int queue_id, int64_t begin):
        """The window of a group over a queue; a new one begins at offset `begin`."""
        window = self.windows.get((group, topic, queue_id))
        if window is None:
            window = self.make_window(group, topic, queue_id, begin)
        return window

    cdef PopWindow make_window(self, str group, str topic, int queue_id, int64_t begin):
        cdef bytes group_bytes = group.encode()
        cdef bytes topic_bytes = topic.encode()
        cdef PopWindow window = PopWindow.__new__(PopWindow)
        if len(group_bytes) > NAME_MAX or len(topic_bytes) > NAME_MAX:
            raise ValueError(f"a group or topic has more than {NAME_MAX} bytes")
        if queue_id < 0 or not in_range(begin):
            raise ValueError(f"queue id {queue_id} or begin {begin} is out of range")
        window.owner = self
        window.pops = &self.pops
        window.group, window.topic, window.queue_id = group, topic, queue_id
        window.name = name_of(group_bytes, topic_bytes, queue_id)
        window.state.key = key_of(window.name, <int32_t> len(window.name))
        window.state.owner = <void *> window
        window.state.next = begin
        pthread_mutex_lock(&self.pops.mutex)
        added = add_window(&self.pops.windows, &window.state)
        pthread_mutex_unlock(&self.pops.mutex)
        if not added:
            raise MemoryError
        self.windows[group, topic, queue_id] = window
        return window

    def find(self, str group, str topic, int queue_id):
        """The window of a group over a queue, or None before its first use."""
        return self.windows.get((group, topic, queue_id))

    def all_windows(self):
        """All windows, as a list."""
        return list(self.windows.values())

    def settled_windows(self):
        """The windows that lanes have changed since the last call."""
        cdef Window *window
        found = []
        pthread_mutex_lock(&self.pops.mutex)
        try:
            while self.pops.noted != NULL:
                window = self.pops.noted
                found.append(<object> window.owner)
                window.noted, self.pops.noted = False, window.noted_after
        finally:
            pthread_mutex_unlock(&self.pops.mutex)
        return found

    def drop_topic(self, str topic):
        """Drop the windows of a topic, and of its lite topics."""
        cdef str light = light_topic(topic, "")
        for window in self.all_windows():
            if (<PopWindow> window).topic == topic or (<PopWindow> window).topic.startswith(light):
                self.drop_window(window)

    def drop_group(self, str group):
        """Drop the windows of a group."""
        for window in self.all_windows():
            if (<PopWindow> window).group == group:
                self.drop_window(window)

    def drop(self, PopWindow window not None):
        """Drop one window."""
        self.drop_window(window)

    cdef int drop_window(self, PopWindow window) except -1:
        pthread_mutex_lock(&self.pops.mutex)
        outcome = drop(&self.pops, &window.state)
        pthread_mutex_unlock(&self.pops.mutex)
        window.answer(outcome)
        del self.windows[window.group, window.topic, window.queue_id]
        return 0

    # --- what is due

    def plan_look(self, int64_t latest_ms):
        """When to look at what is due: at `latest_ms` at the latest; 2^63 - 1 if nothing is out.

        Lanes say so when they take a message that is due before that.
        """
        pthread_mutex_lock(&self.pops.mutex)
        cdef int64_t look_ms = INT64_MAX
        if self.pops.heap.count:
            look_ms = min(self.pops.heap.chunks[0].due_ms, latest_ms)
        self.pops.look_ms = look_ms
        pthread_mutex_unlock(&self.pops.mutex)
        return look_ms

    def due(self, int64_t now_ms, int64_t most):
        """At most `most` messages whose time has come, as a list of Due, each of one window.

        A message is given once: not again before it is extended or given back.
        """
        cdef int64_t count, first, end = 0
        cdef Found *found = <Found *> malloc(max(most, 1) * sizeof(Found))
        if found == NULL:
            raise MemoryError
        runs = []
        try:
            pthread_mutex_lock(&self.pops.mutex)
            count = give_due(&self.pops.heap, now_ms, found, most)
            pthread_mutex_unlock(&self.pops.mutex)
            while end < count:
                first = end
                while end < count and found[end].owner == found[first].owner:
                    end += 1
                runs.append(Due(<object> found[first].owner, rows_of(found + first, end - first)))
            return runs
        finally:
            free(found)

    # --- the journal

    def take_journal(self):
        """The entries since the last call, the body of one record; empty without a change."""
        cdef Journal *journal = &self.pops.journal
        pthread_mutex_lock(&self.pops.mutex)
        try:
            body = PyBytes_FromStringAndSize(<char *> journal.entries.data, journal.entries.used)
            journal.entries.used = 0
            journal.window = NULL
            journal.settled_at = -1
            if journal.entries.size > JOURNAL_KEPT:
                release(&journal.entries)
        finally:
            pthread_mutex_unlock(&self.pops.mutex)
        return body

    def begin_snapshot(self):
        """Begin to copy all windows: next_part() does so, while they change."""
        self.part.entries.used = self.copied = 0
        pthread_mutex_lock(&self.pops.mutex)
        self.pops.windows.to_copy = self.pops.windows.newest
        pthread_mutex_unlock(&self.pops.mutex)

    def next_part(self, int64_t part_size=PART_SIZE):
        """The next part of the snapshot, b"" at its end; from any thread, one at a time.

        The parts in one piece are for restore(). Their entries make each window as it was when it
        was copied, whatever it was before. What take_journal() has returned since
        begin_snapshot(), or since any call before it, is repeated after them. Raise PopFullError if
        so much has changed meanwhile that restore() would refuse it.
        """
        cdef ByteBuffer *entries = &self.part.entries
        cdef int64_t size = 0
        part_size = max(part_size, ALIGNED)
        with nogil:
            while entries.used < part_size:
                size = self.copy_window()
                if size <= 0:
                    break
        if entries.used < part_size and size < 0:
            raise MemoryError
        if self.copied > SNAPSHOT_TIMES * <int64_t> self.limits.store:
            raise PopFullError(f"{self.copied} messages were out while a snapshot was made")
        size = entries.used
        if size >= part_size:
            size -= size % ALIGNED
        part = PyBytes_FromStringAndSize(<char *> entries.data, size)
        entries.used -= size
        if entries.used:
            memmove(entries.data, entries.data + size, entries.used)
        elif size < part_size:
            release(entries)
        return part

    # Adds the next window to the part: 1; 0 if there is none, -1 without memory.
    cdef int copy_window(self) noexcept nogil:
        cdef Window *window
        cdef int result = 0
        pthread_mutex_lock(&self.pops.mutex)
        window = self.pops.windows.to_copy
        if window != NULL:
            self.part.window = NULL
            self.part.settled_at = -1
            result = 1 if put_state(&self.part, window) else -1
            self.copied += window.out
            self.pops.windows.to_copy = window.older
        pthread_mutex_unlock(&self.pops.mutex)
        return result

    def snapshot(self):
        """All parts of a snapshot in one piece."""
        self.begin_snapshot()
        return b"".join(iter(self.next_part, b""))

    def restore(self, const uint8_t[::1] snapshot):
        """Drop all windows, and make those of a snapshot.

        Up to repeated() more messages may be out than the limits allow. Raise PopJournalError as
        replay().
        """
        for window in self.all_windows():
            self.drop_window(window)
        self.set_limits(RESTORED_TIMES)
        self.replay(snapshot)
        self.take_journal()

    def repeated(self):
        """Say that the whole journal is repeated: forget its entries.

        Raise PopJournalError if more messages are out than the limits allow.
        """
        self.take_journal()
        self.set_limits(1)
        most = max([(<PopWindow> window).state.out for window in self.all_windows()], default=0)
        if self.pops.out > self.pops.store_max or most > self.pops.window_max:
            raise PopJournalError(self.too_many())

    cdef void set_limits(self, int64_t times):
        self.pops.store_max = times * <int64_t> self.limits.store
        self.pops.window_max = times * <int64_t> self.limits.window

    cdef str too_many(self):
        return (
            f"the journal has more messages out than the limits allow, {self.limits.store} and "
            f"{self.limits.window} a queue and group: raise them"
        )

    def replay(self, const uint8_t[::1] body):
        """Repeat the entries of a record.

        Raise PopJournalError if one is damaged, with no change made, or if more messages are out
        than the limits allow, with those before it made.
        """
        cdef int64_t at = 0
        cdef int64_t size, left = body.shape[0]
        cdef bint named = False
        while left:
            size = entry_size(&body[at], left)
            if body[at] == WINDOW:
                named = True
            if not size or not named:
                raise PopJournalError(
                    f"entry of kind {body[at]} at byte {at} of {body.shape[0]} is damaged"
                )
            if body[at] == WINDOW:
                decode_names(&body[at], at)
            elif body[at] == DROPPED:
                named = False
            at += size
            left -= size
        if at:
            self.repeat_all(&body[0], at)

    cdef int repeat_all(self, const uint8_t *at, int64_t size) except -1:
        cdef const uint8_t *end = at + size
        cdef PopWindow window = None
        cdef Outcome outcome
        while at < end:
            if at[0] == WINDOW:
                size = entry_size(at, end - at)
                group, topic = decode_names(at, 0)
                window = self.window(group, topic, load_i32(at + 1), load_i64(at + size - 8))
            else:
                size = entry_size(at, end - at)
                pthread_mutex_lock(&self.pops.mutex)
                if at[0] == DROPPED:
                    discard(&self.pops, &window.state)
                    outcome = DONE
                else:
                    outcome = repeat(&self.pops, &window.state, at)
                pthread_mutex_unlock(&self.pops.mutex)
                if outcome == FULL:
                    raise PopJournalError(self.too_many())
                window.answer(outcome)
                if window.state.dropped:
                    del self.windows[window.group, window.topic, window.queue_id]
            at += size
        return 0


# The rows of a Due.
cdef object rows_of(const Found *found, int64_t count):
    rows = numpy.empty((count, 5), numpy.int64)
    cdef int64_t[:, ::1] view = rows
    cdef int64_t i
    for i in range(count):
        view[i, 0], view[i, 1] = found[i].out.offset, found[i].out.pop_ms
        view[i, 2], view[i, 3] = found[i].out.invisible_ms, found[i].out.attempts
        view[i, 4] = found[i].out.ordered
    return rows


cdef bytes name_of(bytes group, bytes topic, int queue_id):
    name = bytearray(NAME_FIXED + len(group) + len(topic))
    put_name(name, slice_of(group), slice_of(topic), queue_id)
    return bytes(name)


# The group and topic of a WINDOW entry, which is at byte `place` of its body.
cdef tuple decode_names(const uint8_t *at, int64_t place):
    cdef int64_t group_length = load_i16(at + 5)
    cdef int64_t topic_length = load_i16(at + 7)
    try:
        return (
            (at + 9)[:group_length].decode(),
            (at + 9 + group_length)[:topic_length].decode(),
        )
    except UnicodeDecodeError as error:
        raise PopJournalError(f"the window at byte {place} has a damaged name: {error}") from None


@cython.final
cdef class PopWindow:
    """The offsets of one queue that pops of one group have taken (RocketMQ: PopCheckPoint).

    All offsets below `begin` are settled, which is the group's offset; `next` is the first that no
    pop has taken. InFlight.window() makes it.
    """

    def __dealloc__(self):
        # The heap is freed with InFlight, and does not look at chunks any more.
        cdef int64_t i
        for i in range(self.state.slot_first, self.state.slot_end):
            free(self.state.slots[i].chunk)
        free(self.state.slots)

    @property
    def begin(self):
        """The first offset that is not settled.

        It moves for what lanes have changed when settled_windows() has returned the window.
        """
        pthread_mutex_lock(&self.pops.mutex)
        cdef int64_t begin = begin_of(&self.state)
        if self.state.noted:
            begin = self.state.noted_begin
        pthread_mutex_unlock(&self.pops.mutex)
        return begin

    @property
    def next(self):
        """The first offset that no pop has taken."""
        pthread_mutex_lock(&self.pops.mutex)
        cdef int64_t offset = self.state.next
        pthread_mutex_unlock(&self.pops.mutex)
        return offset

    @property
    def out(self):
        """Messages that are out."""
        pthread_mutex_lock(&self.pops.mutex)
        cdef int64_t out = self.state.out
        pthread_mutex_unlock(&self.pops.mutex)
        return out

    @property
    def room(self):
        """Messages that take() may take before a limit refuses one."""
        pthread_mutex_lock(&self.pops.mutex)
        cdef int64_t room = min(
            self.pops.window_max - self.state.out, self.pops.store_max - self.pops.out
        )
        pthread_mutex_unlock(&self.pops.mutex)
        return max(room, 0)

    # --- changes

    def take(self, const int64_t[::1] offsets, int64_t upto, int64_t pop_ms,
             int64_t invisible_ms, bint ordered=False):
        """Take messages that are due at `pop_ms` + `invisible_ms`, in ms since 1970.

        `offsets`, in order, are at or after `next` and below `upto`, which is `next` after it: the
        offsets between them are settled, because a filter leaves them out. Returns False, with no
        change made, if a lane has taken some of them meanwhile. Raise PopFullError if a limit would
        be exceeded, with no change made.
        """
        cdef int64_t count = offsets.shape[0]
        cdef int64_t i, after = 0
        cdef Out like
        check_times(pop_ms, invisible_ms)
        for i in range(count):
            if offsets[i] < after:
                raise ValueError(f"offset {offsets[i]} is not in order")
            after = offsets[i] + 1
        if upto < after or not in_range(upto):
            raise ValueError(f"upto is {upto}, before {after} or out of range")
        memset(&like, 0, sizeof(Out))
        like.pop_ms, like.invisible_ms, like.ordered = pop_ms, invisible_ms, ordered
        pthread_mutex_lock(&self.pops.mutex)
        outcome = take(
            self.pops, &self.state, &like, &offsets[0] if count else NULL, count, upto
        )
        pthread_mutex_unlock(&self.pops.mutex)
        if outcome == MOVED:
            return False
        self.answer(outcome)
        return True

    def ack(self, int64_t offset, int64_t pop_ms):
        """Settle a message that was acknowledged: an Answer.

        `pop_ms` is the time of its last pop or extension.
        """
        pthread_mutex_lock(&self.pops.mutex)
        outcome = settle(self.pops, &self.state, offset, pop_ms)
        pthread_mutex_unlock(&self.pops.mutex)
        return self.answer(outcome)

    def ack_all(self, const int64_t[::1] offsets, int64_t pop_ms):
        """Settle messages of one pop that were acknowledged: int8 of the same length, of Answer.

        Raise MemoryError if not all could be settled.
        """
        outcomes = numpy.empty(offsets.shape[0], numpy.int8)
        cdef int8_t[::1] view = outcomes
        if not offsets.shape[0]:
            return outcomes
        with nogil:
            pthread_mutex_lock(&self.pops.mutex)
            settle_all(self.pops, &self.state, &offsets[0], offsets.shape[0], pop_ms, &view[0])
            pthread_mutex_unlock(&self.pops.mutex)
        if (outcomes == NO_MEMORY).any():
            raise MemoryError
        return outcomes

    def settle(self, int64_t offset, int64_t pop_ms):
        """Settle a message that has a copy in the retry topic or has expired: an Answer."""
        return self.ack(offset, pop_ms)

    def extend(self, int64_t offset, int64_t pop_ms, int64_t new_pop_ms, int64_t invisible_ms):
        """Make a message due at another time, and its handle one of `new_pop_ms`: an Answer."""
        check_times(new_pop_ms, invisible_ms)
        pthread_mutex_lock(&self.pops.mutex)
        outcome = extend(
            self.pops, &self.state, offset, pop_ms, new_pop_ms, invisible_ms, False
        )
        pthread_mutex_unlock(&self.pops.mutex)
        return self.answer(outcome)

    def take_again(self, int64_t offset, int64_t pop_ms, int64_t new_pop_ms, int64_t invisible_ms):
        """As extend(), for another attempt in place: an ordered pop takes the message again."""
        check_times(new_pop_ms, invisible_ms)
        pthread_mutex_lock(&self.pops.mutex)
        outcome = extend(
            self.pops, &self.state, offset, pop_ms, new_pop_ms, invisible_ms, True
        )
        pthread_mutex_unlock(&self.pops.mutex)
        return self.answer(outcome)

    def give_back(self, int64_t offset, int64_t pop_ms):
        """Let due() return a message again that it has returned: an Answer."""
        pthread_mutex_lock(&self.pops.mutex)
        outcome = give_back(self.pops, &self.state, offset, pop_ms)
        pthread_mutex_unlock(&self.pops.mutex)
        return self.answer(outcome)

    def reset(self, int64_t offset):
        """Drop what is out; pops continue at `offset`."""
        if not in_range(offset):
            raise ValueError(f"offset {offset} is out of range")
        pthread_mutex_lock(&self.pops.mutex)
        outcome = reset(self.pops, &self.state, offset)
        pthread_mutex_unlock(&self.pops.mutex)
        self.answer(outcome)

    cdef object answer(self, Outcome outcome):
        if outcome == NO_MEMORY:
            raise MemoryError
        if outcome == DROPPED_WINDOW:
            raise ValueError(f"the window {self.group} {self.topic} {self.queue_id} was dropped")
        if outcome == FULL:
            raise PopFullError(
                f"{self.state.out} messages of queue {self.queue_id} of {self.topic} are out for "
                f"{self.group}, of at most {self.pops.window_max}, and {self.pops.out} of the "
                f"store, of at most {self.pops.store_max}: acknowledge some"
            )
        return ANSWERS[outcome]

    # --- what is out

    def messages_out(self, int64_t first, int64_t most):
        """At most `most` messages that are out, from offset `first` on, in order.

        Int64 of shape (n, 4): offset, pop time and invisible time in ms, attempts in place.
        """
        cdef int64_t count = 0
        cdef Place place
        rows = numpy.empty((max(0, min(most, self.out)), 4), numpy.int64)
        cdef int64_t[:, ::1] view = rows
        pthread_mutex_lock(&self.pops.mutex)
        while count < view.shape[0] and out_from(&self.state, first, &place):
            view[count, 0], view[count, 1] = place.offset, place.run.pop_ms
            view[count, 2], view[count, 3] = place.run.invisible_ms, place.run.attempts
            count += 1
            first = place.offset + 1
        pthread_mutex_unlock(&self.pops.mutex)
        return rows[:count]


cdef int check_times(int64_t pop_ms, int64_t invisible_ms) except -1:
    if not in_range(pop_ms) or not 0 <= invisible_ms <= UINT32_MAX:
        raise ValueError(f"pop time {pop_ms} or invisible time {invisible_ms} ms is out of range")
    return 0
