"""Records of a retry topic as pops return them (PopTaking has the rule)."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from congreve.base.cursor cimport load_i32, load_i64, store_i16, store_i32
from congreve.records.byte_compare cimport same
from congreve.records.layout cimport (
    AT_PHYSICAL_OFFSET,
    AT_SIZE,
    PROPERTIES_MAX,
    PROPERTY_SEPARATOR,
)
from congreve.records.message.properties cimport ORIGIN_GROUP, POP_CK, put_name
from congreve.records.record cimport RECORD_OK, RecordView, check, property_of
from congreve.remoting.wire.byte_text cimport put, put_decimal

cdef enum:
    NUMBERS_MAX = 160       # bytes of the numbers and separators of a handle, and of its name


cdef int64_t growth_of(const RetryPop *pop) noexcept nogil:
    return NUMBERS_MAX + pop.broker_name.length + pop.topic.length


cdef uint8_t *put_retried(uint8_t *out, const uint8_t *records, int64_t length,
                          const RetryPop *pop) noexcept nogil:
    cdef const uint8_t *end = records + length
    while records < end and out != NULL:
        out = put_one(out, records, end - records, pop)
        records += load_i32(records + AT_SIZE)
    return out


cdef uint8_t *put_one(uint8_t *out, const uint8_t *record, int64_t left,
                      const RetryPop *pop) noexcept nogil:
    cdef RecordView view
    cdef uint8_t *at
    cdef uint8_t *properties
    cdef const uint8_t *group
    cdef int64_t kept
    cdef int32_t size
    if check(record, left, load_i64(record + AT_PHYSICAL_OFFSET), False, &view) != RECORD_OK:
        return NULL
    if view.store_timestamp > pop.pop_ms:   # it is due after the pop
        return NULL
    if property_of(&view, POP_CK, &size) != NULL:
        return NULL
    group = property_of(&view, ORIGIN_GROUP, &size)
    if group != NULL and not same(group, size, pop.group.data, pop.group.length):
        return NULL
    kept = view.body + view.body_length - record
    memcpy(out, record, kept)
    at = out + kept
    at[0] = <uint8_t> pop.topic.length
    properties = put(at + 1, <const char *> pop.topic.data, pop.topic.length) + 2
    at = put_handle(put_name(properties, POP_CK), &view, pop)
    at[0] = PROPERTY_SEPARATOR
    at = put(at + 1, <const char *> view.properties, view.properties_length)
    if at - properties > PROPERTIES_MAX:
        return NULL
    store_i16(properties - 2, <short> (at - properties))
    store_i32(out + AT_SIZE, <int32_t> (at - out))
    return at


cdef inline uint8_t *put_number(uint8_t *out, int64_t number) noexcept nogil:
    out = put_decimal(out, number)
    out[0] = c" "
    return out + 1


cdef uint8_t *put_handle(uint8_t *out, const RecordView *view,
                         const RetryPop *pop) noexcept nogil:
    """The text of a PopHandle."""
    out = put_number(put_number(out, pop.start_offset), pop.pop_ms)
    out = put_number(put_number(out, pop.invisible_ms), 0)  # REVIVE_QUEUE_ID
    out = put_number(out, pop.kind)
    out = put(out, <const char *> pop.broker_name.data, pop.broker_name.length)
    out[0] = c" "
    return put_decimal(put_number(out + 1, view.queue_id), view.queue_offset)
