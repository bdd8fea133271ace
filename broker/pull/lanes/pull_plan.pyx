"""Pull plans: results of checks that need not be repeated.

A consumer pulls the same queues again and again, and each pull is checked against the same topic,
group and subscription. A change replaces these objects and never edits them, so the checks have the
same result while the objects are the same.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t
from libc.string cimport memcpy

from congreve.base.atomic cimport store_release
from congreve.base.slices cimport Slice
from congreve.remoting.wire.fast_headers cimport read_pull_header
from congreve.remoting.wire.frame cimport HEADER_OK, Frame, Header, next_frame

cdef enum:
    PLANS_MAX = 100_000
    SIZE_MAX = 64 << 20    # of their keys and filters; a shared filter counts for each pull


@cython.final
cdef class PullPlan:
    """The result of a pull's checks, valid while the objects that they read are unchanged.

    `subscription` is None when the request has its own; `tags` and `records` are None when all
    messages pass.
    """

    def __init__(self, *, group, topic, subscription, str message_model not None,
                 ConsumeQueue queue not None, TagFilter tags, RecordFilter records,
                 PullCounter counter not None):
        self.group = group
        self.topic = topic
        self.subscription = subscription
        self.message_model = message_model
        self.queue = queue
        self.tags = tags
        self.records = records
        self.counter = counter
        self.group_name = group.group_name
        self.topic_name = topic.topic_name


@cython.final
cdef class PullPlans:
    """Pull plans by the request fields that their checks depend on; at most 100,000.

    It reads the managers' own tables and does not copy them.
    """

    def __init__(self, *, config, dict groups not None, dict topics not None,
                 dict consumers not None):
        self.config = config
        self.headers = HeaderDecoder()
        self.groups = groups
        self.topics = topics
        self.consumers = consumers
        self.by_key = {}

    def keep(self, bytes frame not None, PullPlan plan not None):
        """Keep this result for pulls like this one; False if compiled code cannot read its header,
        or the fields that the checks depend on are longer than KEY_MAX."""
        cdef PullHeader pull
        cdef Header header
        cdef Frame whole
        cdef int64_t size
        cdef bytes key
        next_frame(<const uint8_t *> PyBytes_AS_STRING(frame), len(frame), &whole)
        if self.headers.decode(&whole, &header, NULL) != HEADER_OK:
            return False
        read_pull_header(&header, &pull)
        key = key_of(&pull) if pull.complete else None
        if key is None:
            return False
        size = len(key) + (0 if plan.records is None else plan.records.size)
        self.size += size
        if len(self.by_key) >= PLANS_MAX or self.size > SIZE_MAX:
            self.by_key.clear()
            self.size = size
        self.by_key[key] = plan
        store_release(&self.added, self.added + 1)
        return True

    def forget(self, set asked not None):
        """Let the event loop check the next pulls of these groups and topics, as pairs."""
        cdef PullPlan plan
        for key, plan in list(self.by_key.items()):
            if (plan.group_name, plan.topic_name) in asked:
                del self.by_key[key]
        self.note_change()

    def note_change(self, *_):
        """Make lanes look up their pulls again: something that checks depend on has changed."""
        store_release(&self.changes, self.changes + 1)

    cdef PullPlan for_lane(self, bytes key):
        cdef PullPlan plan = self.by_key.get(key)
        return plan if plan is not None and self.unchanged(plan) else None

    cdef bint by_loop(self) except -1:
        return self.config.slave_read_enable

    cdef int64_t timeout_ms(self) except? -2:
        config = self.config
        return -1 if config.long_polling_enable else config.short_polling_time_mills

    cdef bint unchanged(self, PullPlan plan) except -1:
        if (
            self.groups.get(plan.group_name) is not plan.group
            or self.topics.get(plan.topic_name) is not plan.topic
            or not self.config.readable
            or (plan.records is not None and not self.config.enable_property_filter)
        ):
            return False
        if plan.subscription is None:
            return True
        online = self.consumers.get(plan.group_name)
        return (
            online is not None
            and online.message_model == plan.message_model
            and online.subscriptions.get(plan.topic_name) is plan.subscription
        )


cdef bytes key_of(const PullHeader *pull):
    """The fields that a pull's checks depend on, as one key; None if it is too long."""
    cdef char[KEY_MAX] key
    cdef Py_ssize_t length = put_key(pull, key)
    return None if length < 0 else PyBytes_FromStringAndSize(key, length)


cdef Py_ssize_t put_key(const PullHeader *pull, char *key) noexcept nogil:
    cdef char *at = key + 16
    cdef int32_t flag = pull.sys_flag & SUBSCRIPTION
    cdef Slice[4] texts
    cdef int32_t i
    memcpy(key, &pull.queue_id, 4)
    memcpy(key + 4, &flag, 4)
    memcpy(key + 8, &pull.sub_version, 8)
    texts = [pull.consumer_group, pull.topic, pull.subscription, pull.expression_type]
    for i in range(4):
        if texts[i].length + 4 > key + KEY_MAX - at:
            return -1
        memcpy(at, &texts[i].length, 4)
        memcpy(at + 4, texts[i].data, texts[i].length)
        at += 4 + texts[i].length
    return at - key
