"""Parking of delayed messages without the GIL, for the hot path; the rules are in delay.py."""

cimport cython
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset, strlen

from congreve.broker.sendproperties cimport (
    TARGET_MAX,
    TIME_FROM_NOW_S,
    TIME_OF_DELIVERY,
    DeliveryWish,
    put_target,
)
from congreve.records.restore cimport decimal
from congreve.remoting.bytetext cimport put, put_decimal

from congreve.broker.topics import SCHEDULE_TOPIC, TIMER_TOPIC

cdef enum:
    TIMER_QUEUE_ID = 0
    NUMBERS_MAX = 64        # DELAY or TIMER_OUT_MS with its number

cdef const char *SCHEDULE = b"SCHEDULE_TOPIC_XXXX"
cdef const char *TIMER = b"rmq_sys_wheel_timer"
cdef int64_t FURTHEST_S = 1 << 40   # beyond any limit, and its milliseconds are a number yet


@cython.final
cdef class DelayPath:
    def __cinit__(self, store, str cluster):
        delays = store.config.delay_levels_ms
        self.store = store
        self.log = store.log
        self.cluster = b"CLUSTER\x01" + cluster.encode()
        self.levels = <int32_t> len(delays)
        self.kept = [None] * (len(delays) + 1)
        self.more = <uint8_t *> PyMem_Malloc(len(self.cluster) + TARGET_MAX + NUMBERS_MAX)
        self.delays_ms = <int64_t *> PyMem_Malloc((len(delays) + 1) * sizeof(int64_t))
        self.queues = <void **> PyMem_Malloc((len(delays) + 1) * sizeof(void *))
        if self.more == NULL or self.delays_ms == NULL or self.queues == NULL:
            raise MemoryError()
        memset(self.queues, 0, (len(delays) + 1) * sizeof(void *))
        for level, delay_ms in enumerate(delays):
            self.delays_ms[level] = delay_ms
        self.config_changed()

    def __dealloc__(self):
        PyMem_Free(self.more)
        PyMem_Free(self.delays_ms)
        PyMem_Free(self.queues)

    def config_changed(self):
        config = self.store.config
        self.takes_times = config.timer_wheel_enable
        self.furthest_ms = config.timer_max_delay_sec * 1000
        self.roll_ms = config.timer_roll_ms

    cdef int open_queue(self) except -1:
        """The queue that the last park() missed."""
        if self.place == self.levels:
            queue = self.store.queues.get(TIMER_TOPIC, TIMER_QUEUE_ID)
        else:
            queue = self.store.queues.get(SCHEDULE_TOPIC, self.place)
        self.kept[self.place] = queue
        self.queues[self.place] = <void *> queue
        return 0

    cdef ParkStatus park(self, Message *message, const DeliveryWish *wish) noexcept nogil:
        cdef int64_t now = self.log.clock.now_ms()
        cdef bint plain
        if wish.time.data == NULL:
            plain = self.for_level(message, decimal(wish.level.data, wish.level.length), now)
        else:
            plain = wish.level.data == NULL and self.for_time(message, wish, now)
        if not plain:
            return PARK_COLD
        self.queue = self.queues[self.place]
        return PARK_QUEUE if self.queue == NULL else PARK_DONE

    cdef bint for_level(self, Message *message, int64_t level, int64_t now) noexcept nogil:
        cdef uint8_t *at = self.more
        level = min(level, <int64_t> self.levels)
        if level <= 0:
            return False
        at = put(at, <const char *> message.properties_more, message.properties_more_length)
        at = put_decimal(put(at, b"\x02DELAY\x01", 7), level)
        at = put_target(at, message)
        message.properties_more = self.more
        message.properties_more_length = <int32_t> (at - self.more)
        message.topic = <const uint8_t *> SCHEDULE
        message.topic_length = <int32_t> strlen(SCHEDULE)
        message.queue_id = self.place = <int32_t> level - 1
        message.tags_code = now + self.delays_ms[level - 1]
        return True

    cdef bint for_time(self, Message *message, const DeliveryWish *wish,
                       int64_t now) noexcept nogil:
        cdef uint8_t *at = self.more
        cdef int64_t due = self.due_time(wish, now)
        if not self.takes_times or due <= now or due - now > self.furthest_ms:
            return False
        at = put(at, <const char *> message.properties_more, message.properties_more_length)
        at = put_decimal(put(at, b"\x02TIMER_OUT_MS\x01", 14), due)
        at = put_target(at, message)
        message.properties_more = self.more
        message.properties_more_length = <int32_t> (at - self.more)
        message.topic = <const uint8_t *> TIMER
        message.topic_length = <int32_t> strlen(TIMER)
        message.queue_id = TIMER_QUEUE_ID
        message.tags_code = min(due, now + self.roll_ms)
        self.place = self.levels
        return True

    # ms since 1970; -1 where it is no plain number.
    cdef int64_t due_time(self, const DeliveryWish *wish, int64_t now) noexcept nogil:
        cdef int64_t number = decimal(wish.time.data, wish.time.length)
        if number < 0 or wish.unit == TIME_OF_DELIVERY:
            return number
        if number > FURTHEST_S:
            return -1
        return now + (number * 1000 if wish.unit == TIME_FROM_NOW_S else number)
