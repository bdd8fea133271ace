"""The quotas of sends for compiled code; broker/quotas/gate.py checks those of the handlers."""

cimport cython
from libc.stdint cimport int64_t

from congreve.base.slices cimport slice_of
from congreve.broker.quotas.charged cimport charged_to, field_of
from congreve.broker.quotas.quota_table cimport SENDS, Charged, has_quotas
from congreve.records.batches.batch_body cimport member_count

BUSY_REMARK = "a quota is used up, start flow control for a while"
"""The remark in the answer to a request that a quota refuses."""

REST_S = REST_MS / 1e3
"""How long the broker does not read a connection that is beyond its quota."""

cdef bytes BUSY = BUSY_REMARK.encode()
cdef Slice BUSY_SLICE = slice_of(BUSY)


cdef Slice busy_remark() noexcept nogil:
    return BUSY_SLICE


@cython.final
cdef class SendQuota:
    """Charges the sends of one thread to the buckets of `table`. (RocketMQ: none.)"""

    def __init__(self, QuotaTable table not None):
        self.table = table

    cdef void begin_chunk(self, int64_t now_ns) noexcept nogil:
        self.now_ns = now_ns
        self.judged_count = 0
        self.limited = False

    cdef JudgedSend *find(self, Slice body) noexcept nogil:
        cdef int64_t i
        # Frames are prepared in order, so that nearly all are behind the last one.
        if not self.judged_count or (
            body.data > self.judged[(self.judged_count - 1) % JUDGED_MAX].body
        ):
            return NULL
        for i in range(min(self.judged_count, <int64_t> JUDGED_MAX)):
            if self.judged[i].body == body.data:
                return &self.judged[i]
        return NULL

    cdef bint refuses(self, const Header *header, const SendHeader *send, Slice body,
                      const Host *sender) noexcept nogil:
        cdef Charged payers
        cdef JudgedSend *judged
        if not has_quotas(self.table):
            return False
        judged = self.find(body)
        if judged != NULL:
            return judged.refused
        judged = &self.judged[self.judged_count % JUDGED_MAX]
        self.judged_count += 1
        judged.body = body.data
        judged.messages = member_count(body.data, body.length) if send.batch else 1
        payers = charged_to(self.table, header, send.topic, send.producer_group,
                            sender.address, sender.length)
        judged.refused = 0 != self.table.take(
            &payers, SENDS, judged.messages, body.length, self.now_ns
        )
        self.limited |= judged.refused
        return judged.refused

    cdef void charge_end(self, const Header *header, const Host *sender) noexcept nogil:
        cdef Charged payers
        cdef Slice topic
        if has_quotas(self.table):
            topic.data, topic.length = NULL, 0
            payers = charged_to(self.table, header, topic, field_of(header, b"producerGroup", 13),
                                sender.address, sender.length)
            self.limited |= 0 != self.table.charge(&payers, SENDS, 1, 0, self.now_ns)

    cdef void cancel_charge(self, const Header *header, const SendHeader *send, Slice body,
                            const Host *sender) noexcept nogil:
        cdef Charged payers
        cdef JudgedSend *judged = self.find(body)
        if judged != NULL and not judged.refused:
            payers = charged_to(self.table, header, send.topic, send.producer_group,
                                sender.address, sender.length)
            self.table.give_back(&payers, SENDS, judged.messages, body.length, self.now_ns)
            judged.body = NULL
