"""Pulls in a lane: those that find messages which were stored lately.

All others go to the event loop, where broker/pull/fast serves them: the first pull of its kind,
pulls with an SQL92 filter, pulls of older messages, and those that must wait.
"""

cimport cython
from libc.stdint cimport int32_t, uint8_t

from congreve.broker.fastpath.answer_buffer cimport has_room
from congreve.broker.pull.pull_table cimport PullEntry
from congreve.broker.pull.validated_pull cimport COMMIT_OFFSET, pull_key
from congreve.engine.queue.consume_queue cimport ConsumeQueue
from congreve.engine.queue.gather cimport Gather, TagFilter
from congreve.remoting.wire.answers cimport (
    PULL_REMARK_MAX,
    PULL_RESPONSE_MAX,
    encode_pull_response,
)
from congreve.remoting.wire.fast_headers cimport read_pull_header
from congreve.remoting.wire.frame cimport FLAG_ONEWAY
from congreve.remoting.wire.slices cimport Slice

cdef Py_ssize_t ANSWERS_MAX = 1 << 20   # bytes of one chunk's answers, beyond which the loop helps


@cython.final
cdef class LanePulls:
    """Answers pulls of one lane; the `table` is that of all lanes."""

    def __init__(self, store, PullTable table not None):
        self.table = table
        self.gather = Gather(store.log, store.limits)

    cdef LanePull serve(self, const Frame *frame, const Header *header,
                        AnswerBuffer *answers) noexcept nogil:
        cdef PullEntry *entry
        cdef int32_t length
        if answers.used > ANSWERS_MAX:
            return LANE_PULL_LOOP
        read_pull_header(header, &self.pull)
        if not self.pull.complete or header.flag & FLAG_ONEWAY:
            return LANE_PULL_LOOP
        length = pull_key(&self.pull, self.key)
        if length < 0:
            return LANE_PULL_LOOP
        entry = self.table.find(self.key, length)
        if entry == NULL or not self.gather.look_at_end(
            <ConsumeQueue> entry.queue, self.pull.queue_offset, max(self.pull.max_count, 1),
            <TagFilter> entry.tags,
        ):
            return LANE_PULL_LOOP
        if not has_room(answers, PULL_RESPONSE_MAX + PULL_REMARK_MAX + self.gather.size):
            return LANE_PULL_ROOM
        self.put_answer(frame, header, answers)
        self.answered += 1
        entry.pulls += 1
        entry.messages += self.gather.count
        entry.size += self.gather.size
        if self.pull.sys_flag & COMMIT_OFFSET:
            entry.committed = self.pull.commit_offset
        self.table.note(entry)
        return LANE_PULL_ANSWERED

    cdef void put_answer(self, const Frame *frame, const Header *header,
                         AnswerBuffer *answers) noexcept nogil:
        cdef uint8_t *out = answers.data + answers.used
        cdef Slice remark
        cdef Py_ssize_t length
        remark.data = b"FOUND"
        remark.length = 5
        length = encode_pull_response(
            out, frame.serialize_type, header.opaque, 0, remark, 0,
            self.gather.next_offset, self.gather.min_offset, self.gather.max_offset,
            <int32_t> self.gather.size,
        )
        self.gather.copy_to(<char *> out + length)
        answers.used += length + self.gather.size
