"""Pulls and pops that wait in a lane for messages (RocketMQ: PullRequestHoldService).

Only the lane's thread uses them. A waiting pull holds the frame of its request, which the lane
serves again when the queue gets an entry or the pull's time is over.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t, uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from congreve.base.atomic cimport add_relaxed
from congreve.base.slices cimport Slice
from congreve.remoting.wire.byte_text cimport put_i32
from congreve.remoting.wire.frame cimport LENGTH_FIELD

cdef int64_t WAITING_MAX = 100_000      # of one lane; pullThreadPoolQueueCapacity
cdef int SLEEP_MAX_MS = 250

WAITING_BYTES_MAX = 64 << 20
"""Bytes that waiting pulls may take, those of all lanes together."""


def watcher_of_lane(int number):
    """The bit of a lane among the watchers of a queue; lanes count from 0 to 62."""
    return <uint64_t> 1 << number


cdef inline int32_t kept_size(const Frame *frame, const Header *header) noexcept nogil:
    """Bytes of its frame that a waiting pull keeps: not the body, which means nothing, unless it
    may be signed: the signature is then verified again."""
    cdef Slice key
    cdef int32_t i
    for i in range(header.count if frame.body.length else 0):
        key = header.fields[i].key
        if key.length == 9 and not memcmp(key.data, b"Signature", 9):
            return frame.size
    return frame.size - frame.body.length


cdef inline int bucket_of(void *queue) noexcept nogil:
    cdef uint64_t hash = (<uint64_t> <uintptr_t> queue >> 4) * <uint64_t> 0x9E3779B97F4A7C15U
    return <int> (hash >> 51)   # the upper 13 bits: BUCKETS


cdef inline void link(WaitingPull **head, WaitingPull *pull, WaitingList which) noexcept nogil:
    cdef WaitingPull *first = head[0]
    pull.links[<int> which].next = first
    pull.links[<int> which].before = head
    if first != NULL:
        first.links[<int> which].before = &pull.links[<int> which].next
    head[0] = pull


cdef inline void unlink(WaitingPull *pull, WaitingList which) noexcept nogil:
    cdef Link *place = &pull.links[<int> which]
    if place.before == NULL:
        return
    place.before[0] = place.next
    if place.next != NULL:
        place.next.links[<int> which].before = place.before
    place.before = NULL


cdef inline int64_t memory_of(int64_t size) noexcept nogil:
    """Bytes of memory that a pull with a frame of this size takes."""
    return <int64_t> (sizeof(WaitingPull) + sizeof(PullProgress)) + size


cdef void free_pull(WaitingPull *pull) noexcept nogil:
    free(pull.watches)
    free(pull)


cdef inline void count_waiting(WaitCounts *counts, int64_t change) noexcept nogil:
    add_relaxed(&counts.in_lanes, change)
    add_relaxed(&counts.total.in_lanes, change)


cdef inline void end_watch(Watch *watch) noexcept nogil:
    watch.before[0] = watch.next
    if watch.next != NULL:
        watch.next.before = watch.before


@cython.final
cdef class LanePolling:
    """The waiting pulls of one lane, by queue, by due time and by connection.

    They take at most `size_max` bytes. (RocketMQ: PullRequestHoldService.)
    """

    def __cinit__(self, QuotaTable quotas not None, int64_t size_max):
        self.quotas, self.size_max = quotas, size_max

    def __dealloc__(self):
        cdef WaitingPull *pull
        cdef int i
        for i in range(TICKS):  # each pull is in the wheel
            while self.wheel[i] != NULL:
                pull = self.wheel[i]
                pull.counts = NULL      # they may be gone
                self.take_out(pull)
                free_pull(pull)

    def __len__(self):
        return self.count

    cdef WaitingPull *add(self, LaneConnection *connection, const Frame *frame,
                          const Header *header, const PullProgress *progress, int64_t now_ms,
                          int64_t timeout_ms) noexcept nogil:
        cdef WaitingPull *pull
        cdef int32_t size = kept_size(frame, header)
        cdef int64_t taken = memory_of(size)
        if self.count >= WAITING_MAX or self.size + taken > self.size_max:
            return NULL
        pull = <WaitingPull *> malloc(taken)
        if pull == NULL:
            return NULL
        if not self.count:
            self.tick = now_ms // TICK_MS   # there is nothing to move
        pull.has_place = False
        pull.owner, pull.watches, pull.watch_count, pull.counts = <void *> self, NULL, 0, NULL
        pull.frame = <uint8_t *> (pull + 1) + sizeof(PullProgress)
        memcpy(pull.frame, frame.data, size)
        put_i32(pull.frame, size - LENGTH_FIELD)
        pull.size = size
        pull.connection = connection.id
        pull.queue = NULL
        pull.links[<int> OF_QUEUE].before = pull.links[<int> OF_TICK].before = NULL
        pull.progress = progress[0]
        pull.deadline_ms = now_ms + max(timeout_ms, 0)
        link(<WaitingPull **> &connection.of_sink, pull, OF_CONNECTION)
        self.check_at(pull, pull.deadline_ms)
        self.count += 1
        self.size += taken
        return pull

    cdef bint take_place(self, WaitingPull *pull, const Charged *payers) noexcept nogil:
        if not pull.has_place:
            pull.has_place = self.quotas.hold(payers, pull.places, True)
        return pull.has_place

    cdef void wait(self, WaitingPull *pull, void *queue) noexcept nogil:
        pull.queue = queue
        unlink(pull, OF_QUEUE)
        link(&self.buckets[bucket_of(queue)], pull, OF_QUEUE)

    cdef bint wait_for_all(self, WaitingPull *pull, int32_t count,
                           WaitCounts *counts) noexcept nogil:
        pull.watches = <Watch *> malloc(count * sizeof(Watch))
        if pull.watches == NULL:
            return False
        pull.counts = counts
        count_waiting(counts, 1)
        return True

    cdef void add_watch(self, WaitingPull *pull, void *queue) noexcept nogil:
        cdef Watch *watch = &pull.watches[pull.watch_count]
        cdef Watch **first = &self.watches[bucket_of(queue)]
        pull.watch_count += 1
        self.size += <int64_t> sizeof(Watch)
        watch.pull, watch.queue = pull, queue
        watch.next, watch.before = first[0], first
        if watch.next != NULL:
            watch.next.before = &watch.next
        first[0] = watch

    cdef void rest(self, WaitingPull *pull) noexcept nogil:
        unlink(pull, OF_QUEUE)

    cdef void wait_hidden(self, WaitingPull *pull, void *queue) noexcept nogil:
        pull.queue = queue
        unlink(pull, OF_QUEUE)
        link(&self.hidden, pull, OF_QUEUE)

    cdef void shown(self) noexcept nogil:
        self.notices += 1
        while self.hidden != NULL:
            self.check_soon(self.hidden)

    cdef void arrived(self, void *queue) noexcept nogil:
        cdef WaitingPull *pull = self.buckets[bucket_of(queue)]
        cdef WaitingPull *following
        cdef Watch *watch = self.watches[bucket_of(queue)]
        self.notices += 1
        while watch != NULL:
            if watch.queue == queue:
                self.check_soon(watch.pull)
            watch = watch.next
        while pull != NULL:
            following = pull.links[<int> OF_QUEUE].next
            if pull.queue == queue:
                self.check_soon(pull)
            pull = following

    cdef void all_soon(self) noexcept nogil:
        cdef WaitingPull *pull
        cdef int i
        self.notices += 1
        for i in range(TICKS):
            pull = self.wheel[i]
            while pull != NULL:
                self.check_soon(pull)
                pull = pull.links[<int> OF_TICK].next

    cdef void end_all(self) noexcept nogil:
        cdef WaitingPull *pull
        cdef int i
        for i in range(TICKS):
            pull = self.wheel[i]
            while pull != NULL:
                pull.progress.flags |= MUST_END
                pull = pull.links[<int> OF_TICK].next
        self.all_soon()

    cdef void check_soon(self, WaitingPull *pull) noexcept nogil:
        unlink(pull, OF_QUEUE)
        link(&self.to_check, pull, OF_QUEUE)

    cdef void check_at(self, WaitingPull *pull, int64_t due_ms) noexcept nogil:
        cdef int64_t tick = max(due_ms // TICK_MS, self.tick) + 1
        pull.due_ms = due_ms
        unlink(pull, OF_TICK)
        link(&self.wheel[tick % TICKS], pull, OF_TICK)

    cdef void turn(self, int64_t now_ms) noexcept nogil:
        cdef int64_t now = now_ms // TICK_MS
        cdef WaitingPull *pull
        cdef WaitingPull *following
        if not self.count:
            return
        self.tick = max(self.tick, now - TICKS)
        while self.tick < now:
            self.tick += 1
            pull = self.wheel[self.tick % TICKS]
            while pull != NULL:
                following = pull.links[<int> OF_TICK].next
                if pull.due_ms <= now_ms:
                    self.check_soon(pull)
                pull = following

    cdef WaitingPull *next(self) noexcept nogil:
        return self.to_check

    cdef int sleep_ms(self, int64_t now_ms) noexcept nogil:
        cdef int64_t tick
        if self.to_check != NULL:
            return 0
        if self.count:
            for tick in range(self.tick + 1, self.tick + SLEEP_MAX_MS // TICK_MS + 1):
                if self.wheel[tick % TICKS] != NULL:
                    return <int> max(tick * TICK_MS - now_ms, 0)
        return SLEEP_MAX_MS

    cdef void take_out(self, WaitingPull *pull) noexcept nogil:
        unlink(pull, OF_QUEUE)
        unlink(pull, OF_TICK)
        unlink(pull, OF_CONNECTION)
        self.count -= 1
        self.size -= memory_of(pull.size) + pull.watch_count * <int64_t> sizeof(Watch)
        while pull.watch_count:
            pull.watch_count -= 1
            end_watch(&pull.watches[pull.watch_count])
        if pull.counts != NULL:
            count_waiting(pull.counts, -1)
        if pull.has_place:
            self.quotas.release_place(pull.places)

    cdef void drop_connection(self, LaneConnection *connection) noexcept nogil:
        cdef WaitingPull *pull = <WaitingPull *> connection.of_sink
        cdef WaitingPull *following
        while pull != NULL:
            following = pull.links[<int> OF_CONNECTION].next
            if pull.owner == <void *> self:
                self.take_out(pull)
                free_pull(pull)
            pull = following
