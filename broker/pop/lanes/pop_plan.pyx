"""Pop plans: results of checks that need not be repeated, as those of pulls
(broker/pull/lanes/pull_plan.pyx).
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport int32_t
from libc.string cimport memcpy

from congreve.base.atomic cimport load_relaxed, store_relaxed, store_release
from congreve.base.slices cimport Slice, slice_of
from congreve.engine.pop.in_flight cimport PopWindow
from congreve.engine.queue.consume_queue cimport ConsumeQueue

cdef enum:
    PLANS_MAX = 100_000
    SIZE_MAX = 16 << 20    # of their keys and filters; a shared filter counts for each pop


@cython.final
cdef class WaitCounter:
    """How many pops of one group and topic wait, which `total` counts, too, or how many of all.

    It must outlive those that wait in lanes.
    """

    def __cinit__(self, WaitCounter total):
        self.total = total
        if total is not None:
            self.counts.total = &total.counts

    @property
    def in_lanes(self):
        """Those that lanes hold."""
        return load_relaxed(&self.counts.in_lanes)

    @property
    def on_loop(self):
        """Those that the event loop holds, which sets the number."""
        return load_relaxed(&self.counts.on_loop)

    @on_loop.setter
    def on_loop(self, int64_t count):
        store_relaxed(&self.counts.on_loop, count)


@cython.final
cdef class PopPlan:
    """What lanes need to serve such pops, valid while the objects that it was made from are
    unchanged.

    `places` are the queues of the topic and then `retries` more with what comes again, with their
    windows, queues and kinds. A queue that the group only pulls has None as its window, and one
    from which only the event loop takes -1 as its kind.
    """

    def __cinit__(self, *, group, topic, dict retry_topics not None, list places not None,
                  list windows not None, list queues not None, list kinds not None,
                  int32_t retries, bint by_priority, TagFilter tags, RecordFilter records,
                  PullCounter counter not None, WaitCounter waiting not None):
        cdef int32_t i
        self.group, self.topic, self.retry_topics = group, topic, retry_topics
        self.tags, self.records, self.counter = tags, records, counter
        self.places, self.windows, self.opened, self.waiting = places, windows, queues, waiting
        self.by_priority = by_priority
        self.count, self.retries = <int32_t> len(queues) - retries, retries
        self.queues = <PopQueue *> PyMem_Calloc(len(queues), sizeof(PopQueue))
        if self.queues == NULL:
            raise MemoryError()
        for i in range(len(queues)):
            self.queues[i].queue = <void *> <ConsumeQueue?> queues[i]
            self.queues[i].kind = kinds[i]
            if i < self.count or windows[i] is not None:
                self.queues[i].window = &(<PopWindow?> windows[i]).state

    def __dealloc__(self):
        PyMem_Free(self.queues)


@cython.final
cdef class PopPlans:
    """Pop plans by the request fields that their checks depend on; at most 100,000.

    It reads the managers' own tables and does not copy them. The pops of the groups and topics in
    `pulled` are for the event loop: other members pull. `find(group, topic, queue_id)` returns a
    window or None, `committed()` of the same an offset or -1.
    """

    def __init__(self, *, config, dict groups not None, dict topics not None,
                 dict pulled not None, find, committed):
        self.config = config
        self.groups, self.topics, self.pulled = groups, topics, pulled
        self.find, self.committed = find, committed
        self.by_key, self.read_to = {}, {}

    def has(self, bytes key not None):
        """Whether lanes may serve pops of this key now."""
        cdef PopPlan plan = self.for_lane(key)
        return plan is not None and self.note_read(plan)

    def keep(self, bytes key not None, PopPlan plan not None):
        """Keep this plan for pops of this key (pop_key())."""
        cdef int64_t size = len(key) + (0 if plan.records is None else plan.records.size)
        self.note_read(plan)
        self.size += size
        if len(self.by_key) >= PLANS_MAX or self.size > SIZE_MAX:
            self.clear()
            self.size = size
        replaces = key in self.by_key
        self.by_key[key] = plan
        store_release(&self.added, self.added + 1)
        if replaces:
            self.note_change()

    def note_offset(self, tuple place not None, int64_t committed):
        """Make the event loop look at a queue that a group only pulls if it is to read it again;
        returns whether it is."""
        if committed >= self.read_to.get(place, 0):
            return False
        self.clear()
        return True

    def clear(self):
        """Let the event loop serve the next pop of each kind."""
        self.by_key.clear()
        self.read_to.clear()
        self.size = 0
        self.note_change()

    def note_change(self, *_):
        """Make lanes look up their pops again: something that checks depend on has changed."""
        store_release(&self.changes, self.changes + 1)

    cdef PopPlan for_lane(self, bytes key):
        cdef PopPlan plan = self.by_key.get(key)
        return plan if plan is not None and self.unchanged(plan) else None

    cdef bint unchanged(self, PopPlan plan) except -1:
        cdef int32_t i
        group, topic = plan.group.group_name, plan.topic.topic_name
        for i in range(plan.count + plan.retries):
            if plan.queues[i].window != NULL and plan.queues[i].window.dropped:
                return False
        for name, settings in plan.retry_topics.items():
            if self.topics.get(name) is not settings:
                return False
        return (
            self.groups.get(group) is plan.group
            and self.topics.get(topic) is plan.topic
            and (group, topic) not in self.pulled
            and self.config.readable
            and not self.config.is_slave
            and (plan.records is None or self.config.enable_property_filter)
        )

    cdef bint note_read(self, PopPlan plan) except -1:
        """Note how far the group has pulled what comes again; False if it pops that now."""
        cdef int32_t i
        for i in range(plan.count, plan.count + plan.retries):
            if plan.queues[i].window == NULL:
                place = plan.places[i]
                if self.find(*place) is not None:
                    return False
                self.read_to[place] = max(self.committed(*place), 0)
                store_release(&plan.queues[i].read_to, self.read_to[place])
        return True

    cdef int64_t waiting_max(self) except -1:
        return self.config.pops.pop_polling_size

    cdef int64_t all_waiting_max(self) except -1:
        return self.config.pops.max_pop_polling_size

    cdef int32_t retries_first(self, PopPlan plan) except -1:
        pops = self.config.pops
        if plan.by_priority:
            return pops.pop_from_retry_probability_for_priority
        return pops.pop_from_retry_probability

    cdef int32_t direction(self, PopPlan plan) except? -2:
        if not plan.by_priority:
            return 0
        return -1 if self.config.pops.priority_order_asc else 1


def pop_key(str group not None, str topic not None, int32_t queue_id, str expression,
            str expression_type):
    """The fields that a pop's checks depend on, as one key; None if it is too long."""
    cdef PopHeader pop
    cdef char[KEY_MAX] key
    cdef Py_ssize_t length
    cdef list texts = [
        None if text is None else text.encode("utf-8", "surrogatepass")
        for text in (group, topic, expression, expression_type)
    ]
    pop.queue_id = queue_id
    pop.consumer_group, pop.topic = slice_of(texts[0]), slice_of(texts[1])
    pop.expression, pop.expression_type = optional(texts[2]), optional(texts[3])
    length = put_key(&pop, key)
    return None if length < 0 else PyBytes_FromStringAndSize(key, length)


cdef Slice optional(bytes text):
    cdef Slice none
    none.data, none.length = NULL, 0
    return none if text is None else slice_of(text)


cdef Py_ssize_t put_key(const PopHeader *pop, char *key) noexcept nogil:
    cdef char *at = key + 4
    cdef Slice[4] texts
    cdef int32_t i, length
    memcpy(key, &pop.queue_id, 4)
    texts = [pop.consumer_group, pop.topic, pop.expression, pop.expression_type]
    for i in range(4):
        if texts[i].length + 4 > key + KEY_MAX - at:
            return -1
        length = -1 if texts[i].data == NULL else texts[i].length
        memcpy(at, &length, 4)
        memcpy(at + 4, texts[i].data, texts[i].length)
        at += 4 + texts[i].length
    return at - key
