from cpython.mem cimport PyMem_Malloc
from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memcpy

from congreve.base.slices cimport Slice
from congreve.broker.requests.properties cimport DeliveryWish, SendKind
from congreve.engine.log.commit_log cimport Appended
from congreve.records.byte_table cimport Key, key_of
from congreve.records.layout cimport PROPERTIES_MAX
from congreve.records.record cimport Message

# Sends that are decoded and checked, so that they only have to be appended.

cdef enum:
    PREPARED_MAX = 32       # sends under one hold of the append lock
    TOPIC_MAX = 255         # bytes of a topic's name; a send with a longer one is not ordinary
    TEXT_MAX = 2 * PROPERTIES_MAX + TOPIC_MAX       # bytes that one send may need
    TEXT_ROOM = 2 * TEXT_MAX

cdef struct PreparedSend:
    Message message
    Slice body
    Key topic
    SendKind kind
    DeliveryWish wish
    int32_t queue_id        # that was asked for or chosen; a parked message has another one
    bint any_queue          # the sender leaves the choice to the broker
    int32_t frame_size
    int32_t code            # of the request
    int32_t serialize_type
    int32_t opaque
    bint oneway
    bint refused            # by a quota: it is answered, not appended
    Py_ssize_t answer_size_max  # bytes of its answer, at most
    Appended appended       # after the append
    void *counts            # the TopicCounts of its topic, then

# Decoding a header may overwrite what the one before it left, hence `text`.
cdef struct PreparedSends:
    PreparedSend sends[PREPARED_MAX]
    int32_t count
    int32_t appended        # of them
    Py_ssize_t answer_size_max  # bytes of all answers, at most
    uint8_t *text           # their properties and topics
    Py_ssize_t text_used


cdef inline int allocate_prepared(PreparedSends *prepared) except -1:
    prepared.text = <uint8_t *> PyMem_Malloc(TEXT_ROOM)
    if prepared.text == NULL:
        raise MemoryError()
    return 0


cdef inline void clear_prepared(PreparedSends *prepared) noexcept nogil:
    prepared.count = prepared.appended = 0
    prepared.text_used = prepared.answer_size_max = 0


# Whether no further send may be prepared before these are appended.
cdef inline bint is_full(const PreparedSends *prepared) noexcept nogil:
    return prepared.count == PREPARED_MAX or prepared.text_used + TEXT_MAX > TEXT_ROOM


# Copy the topic of the next send after its `used` bytes of properties.
cdef inline void put_topic(PreparedSends *prepared, PreparedSend *send, Slice topic,
                           Py_ssize_t used) noexcept nogil:
    cdef uint8_t *at = prepared.text + prepared.text_used + used
    memcpy(at, topic.data, topic.length)
    send.topic = key_of(at, topic.length)
    prepared.text_used += used + topic.length
