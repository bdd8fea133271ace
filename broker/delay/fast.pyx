"""Parking of delayed messages without the GIL, for the fast path; parking.py has the rules."""

cimport cython
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memset, strlen

from congreve.base.slices cimport slice_of
from congreve.broker.delay.recall_handle cimport put_recall_handle, recall_handle_room
from congreve.broker.requests.prepared cimport TOPIC_MAX
from congreve.broker.requests.properties cimport (
    TARGET_MAX,
    TIME_FROM_NOW_S,
    TIME_OF_DELIVERY,
    DeliveryWish,
    put_target,
)
from congreve.records.message.parked cimport level_due, timer_wake
from congreve.records.message.properties cimport DELAY, TIMER_OUT_MS, put_next_name
from congreve.records.message.topics cimport SCHEDULE_TOPIC, TIMER_QUEUE_ID, TIMER_TOPIC
from congreve.records.restore cimport decimal
from congreve.remoting.wire.byte_text cimport put, put_decimal

from congreve.records.message import properties
from congreve.records.message.property_codec import encode_properties

cdef enum:
    NUMBERS_MAX = 64        # DELAY or TIMER_OUT_MS with its number

cdef int64_t FURTHEST_S = 1 << 40   # beyond any limit, and still an int64 in milliseconds


@cython.final
cdef class DelayPath:
    """Parks ordinary delayed messages for the fast path: one level or one time in plain digits.

    congreve.broker.delay.parking handles every other message: a level of 0 or with a sign, what is
    no number, a time that has passed or is too far ahead, a level together with a time.
    (RocketMQ: ScheduleMessageService's part of CommitLog.asyncPutMessage.)
    """

    def __cinit__(self, store, str cluster, str broker_name):
        delays = store.config.delay_levels_ms
        self.store = store
        self.log = store.log
        self.cluster = encode_properties({properties.CLUSTER: cluster})
        self.broker_name = broker_name.encode()
        self.broker = slice_of(self.broker_name)
        self.handle_size_max = recall_handle_room(TOPIC_MAX, len(self.broker_name))
        self.handle = <uint8_t *> PyMem_Malloc(self.handle_size_max)
        self.handle_text = <uint8_t *> PyMem_Malloc(self.handle_size_max)
        self.levels = <int32_t> len(delays)
        self.opened_queues = [None] * (len(delays) + 1)
        self.added_properties = <uint8_t *> PyMem_Malloc(
            len(self.cluster) + TARGET_MAX + NUMBERS_MAX
        )
        self.delays_ms = <int64_t *> PyMem_Malloc((len(delays) + 1) * sizeof(int64_t))
        self.queues = <void **> PyMem_Malloc((len(delays) + 1) * sizeof(void *))
        if (
            self.added_properties == NULL or self.delays_ms == NULL or self.queues == NULL
            or self.handle == NULL or self.handle_text == NULL
        ):
            raise MemoryError()
        memset(self.queues, 0, (len(delays) + 1) * sizeof(void *))
        for level, delay_ms in enumerate(delays):
            self.delays_ms[level] = delay_ms
        self.config_changed()

    def __dealloc__(self):
        PyMem_Free(self.added_properties)
        PyMem_Free(self.delays_ms)
        PyMem_Free(self.queues)
        PyMem_Free(self.handle)
        PyMem_Free(self.handle_text)

    def config_changed(self):
        """Follow timerWheelEnable, timerMaxDelaySec and timerRollWindowSlot; levels are fixed."""
        config = self.store.config
        self.takes_times = config.timer_wheel_enable
        self.furthest_ms = config.timer_max_delay_sec * 1000
        self.roll_ms = config.timer_roll_ms

    cdef int open_queue(self) except -1:
        """Open the queue that the last park() did not have."""
        if self.place == self.levels:
            queue = self.store.queues.get(TIMER_TOPIC.decode(), TIMER_QUEUE_ID)
        else:
            queue = self.store.queues.get(SCHEDULE_TOPIC.decode(), self.place)
        self.opened_queues[self.place] = queue
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
            return PARK_PYTHON
        self.queue = self.queues[self.place]
        return PARK_QUEUE if self.queue == NULL else PARK_DONE

    cdef bint for_level(self, Message *message, int64_t level, int64_t now) noexcept nogil:
        cdef uint8_t *at = self.added_properties
        if level > INT32_MAX:
            return False
        level = min(level, <int64_t> self.levels)
        if level <= 0:
            return False
        at = put(at, <const char *> message.properties_more, message.properties_more_length)
        at = put_decimal(put_next_name(at, DELAY), level)
        at = put_target(at, message)
        message.properties_more = self.added_properties
        message.properties_more_length = <int32_t> (at - self.added_properties)
        message.topic = <const uint8_t *> SCHEDULE_TOPIC
        message.topic_length = <int32_t> strlen(SCHEDULE_TOPIC)
        message.queue_id = self.place = <int32_t> level - 1
        message.tags_code = level_due(self.delays_ms, self.levels, level, now)
        return True

    cdef bint for_time(self, Message *message, const DeliveryWish *wish,
                       int64_t now) noexcept nogil:
        cdef uint8_t *at = self.added_properties
        cdef int64_t due = self.due_time(wish, now)
        if not self.takes_times or due <= now or due - now > self.furthest_ms:
            return False
        at = put(at, <const char *> message.properties_more, message.properties_more_length)
        at = put_decimal(put_next_name(at, TIMER_OUT_MS), due)
        self.due_ms = due
        self.recall_handle.data = self.handle
        self.recall_handle.length = <int32_t> put_recall_handle(
            self.handle, self.handle_text, message, self.broker, due
        )
        at = put_target(at, message)
        message.properties_more = self.added_properties
        message.properties_more_length = <int32_t> (at - self.added_properties)
        message.topic = <const uint8_t *> TIMER_TOPIC
        message.topic_length = <int32_t> strlen(TIMER_TOPIC)
        message.queue_id = TIMER_QUEUE_ID
        message.tags_code = timer_wake(due, now, self.roll_ms)
        self.place = self.levels
        return True

    # In ms since 1970; -1 unless the value is a plain number.
    cdef int64_t due_time(self, const DeliveryWish *wish, int64_t now) noexcept nogil:
        cdef int64_t number = decimal(wish.time.data, wish.time.length)
        if number < 0 or wish.unit == TIME_OF_DELIVERY:
            return number
        if number > FURTHEST_S:
            return -1
        return now + (number * 1000 if wish.unit == TIME_FROM_NOW_S else number)
