"""Checks of pulls that need not be made again.

A consumer pulls the same queues again and again, and each pull is checked against the same topic,
group and subscription. Those are replaced, never edited, so while they are the same objects, the
checks come out the same.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.string cimport memcpy

from congreve.remoting.slices cimport Slice

cdef enum:
    COMMIT_OFFSET = 1       # bits of a pull's sysFlag
    SUBSCRIPTION = 4
    KEY_MAX = 2048
    TICKETS_MAX = 100_000


@cython.final
cdef class PullCounter:
    cpdef void add(self, int64_t messages, int64_t size) noexcept:
        self.pulls += 1
        self.messages += messages
        self.size += size


@cython.final
cdef class PullTicket:
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
cdef class PullTickets:
    def __init__(self, *, config, offsets, dict groups not None, dict topics not None,
                 dict consumers not None):
        self.config = config
        self.offsets = offsets
        self.groups = groups
        self.topics = topics
        self.consumers = consumers
        self.tickets = {}

    cdef PullTicket find(self, const PullHeader *pull):
        cdef PullTicket ticket
        self.key = key_of(pull)
        ticket = self.tickets.get(self.key)
        return ticket if ticket is not None and self.unchanged(ticket) else None

    cdef int keep(self, PullTicket ticket) except -1:
        if self.key is None:
            return 0
        if len(self.tickets) >= TICKETS_MAX:
            self.tickets.clear()
        self.tickets[self.key] = ticket
        return 0

    cdef int commit(self, PullTicket ticket, const PullHeader *pull) except -1:
        if pull.sys_flag & COMMIT_OFFSET and not self.config.is_slave:
            self.offsets.commit(
                ticket.group_name, ticket.topic_name, pull.queue_id, pull.commit_offset
            )
        return 0

    cdef bint unchanged(self, PullTicket ticket) except -1:
        if (
            self.groups.get(ticket.group_name) is not ticket.group
            or self.topics.get(ticket.topic_name) is not ticket.topic
            or not self.config.readable
            or (ticket.records is not None and not self.config.enable_property_filter)
        ):
            return False
        if ticket.subscription is None:
            return True
        online = self.consumers.get(ticket.group_name)
        return (
            online is not None
            and online.message_model == ticket.message_model
            and online.subscriptions.get(ticket.topic_name) is ticket.subscription
        )


cdef bytes key_of(const PullHeader *pull):
    """All that the checks of a pull depend on, as one key; None where it is too long."""
    cdef char key[KEY_MAX]
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
            return None
        memcpy(at, &texts[i].length, 4)
        memcpy(at + 4, texts[i].data, texts[i].length)
        at += 4 + texts[i].length
    return PyBytes_FromStringAndSize(key, at - key)
