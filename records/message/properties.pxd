# The parts of properties.py that compiled code needs (tests/records/message compares the two), and
# how a property is found and written. The compiler folds the lengths of the names.
from libc.stdint cimport uint8_t
from libc.string cimport memcmp, memcpy, strlen

from congreve.records.layout cimport NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR

cdef extern from *:
    """
    #define CONGREVE_KEYS "KEYS"
    #define CONGREVE_TAGS "TAGS"
    #define CONGREVE_WAIT "WAIT"
    #define CONGREVE_UNIQ_KEY "UNIQ_KEY"
    #define CONGREVE_CLUSTER "CLUSTER"
    #define CONGREVE_SHARDING_KEY "__SHARDINGKEY"
    #define CONGREVE_PRIORITY "_SYS_MSG_PRIORITY_"
    #define CONGREVE_BORN_HOST "__BORNHOST"
    #define CONGREVE_BORN_TIMESTAMP "BORN_TIMESTAMP"
    #define CONGREVE_TRACE_CONTEXT "TRACE_CONTEXT"
    #define CONGREVE_DELAY "DELAY"
    #define CONGREVE_REAL_TOPIC "REAL_TOPIC"
    #define CONGREVE_REAL_QUEUE_ID "REAL_QID"
    #define CONGREVE_TIMER_PREFIX "TIMER_"
    #define CONGREVE_TIMER_DELIVER_MS "TIMER_DELIVER_MS"
    #define CONGREVE_TIMER_DELAY_MS "TIMER_DELAY_MS"
    #define CONGREVE_TIMER_DELAY_SEC "TIMER_DELAY_SEC"
    #define CONGREVE_TIMER_OUT_MS "TIMER_OUT_MS"
    #define CONGREVE_RETRY_TOPIC "RETRY_TOPIC"
    #define CONGREVE_RETRY_TOPIC_UNCHECKED "RETRY_TOPIC_UNCHECKED"
    #define CONGREVE_ORIGIN_MESSAGE_ID "ORIGIN_MESSAGE_ID"
    #define CONGREVE_RECONSUME_TIME "RECONSUME_TIME"
    #define CONGREVE_MAX_RECONSUME_TIMES "MAX_RECONSUME_TIMES"
    #define CONGREVE_TRANSACTION_PREPARED "TRAN_MSG"
    #define CONGREVE_PRODUCER_GROUP "PGROUP"
    #define CONGREVE_TRANSACTION_PREPARED_QUEUE_OFFSET "TRAN_PREPARED_QUEUE_OFFSET"
    #define CONGREVE_TRANSACTION_CHECK_TIMES "TRANSACTION_CHECK_TIMES"
    #define CONGREVE_INNER_MULTI_DISPATCH "INNER_MULTI_DISPATCH"
    #define CONGREVE_INNER_MULTI_QUEUE_OFFSET "INNER_MULTI_QUEUE_OFFSET"
    #define CONGREVE_POP_CK "POP_CK"
    #define CONGREVE_FIRST_POP_TIME "1ST_POP_TIME"
    #define CONGREVE_ORIGIN_GROUP "ORIGIN_GROUP"
    #define CONGREVE_DLQ_ORIGIN_TOPIC "DLQ_ORIGIN_TOPIC"
    #define CONGREVE_DLQ_ORIGIN_MESSAGE_ID "DLQ_ORIGIN_MESSAGE_ID"
    #define CONGREVE_LITE_TOPIC "__LITE_TOPIC"
    """
    const char *KEYS "CONGREVE_KEYS"
    const char *TAGS "CONGREVE_TAGS"
    const char *WAIT "CONGREVE_WAIT"
    const char *UNIQ_KEY "CONGREVE_UNIQ_KEY"
    const char *CLUSTER "CONGREVE_CLUSTER"
    const char *SHARDING_KEY "CONGREVE_SHARDING_KEY"
    const char *PRIORITY "CONGREVE_PRIORITY"
    const char *BORN_HOST "CONGREVE_BORN_HOST"
    const char *BORN_TIMESTAMP "CONGREVE_BORN_TIMESTAMP"
    const char *TRACE_CONTEXT "CONGREVE_TRACE_CONTEXT"
    const char *DELAY "CONGREVE_DELAY"
    const char *REAL_TOPIC "CONGREVE_REAL_TOPIC"
    const char *REAL_QUEUE_ID "CONGREVE_REAL_QUEUE_ID"
    const char *TIMER_PREFIX "CONGREVE_TIMER_PREFIX"
    const char *TIMER_DELIVER_MS "CONGREVE_TIMER_DELIVER_MS"
    const char *TIMER_DELAY_MS "CONGREVE_TIMER_DELAY_MS"
    const char *TIMER_DELAY_SEC "CONGREVE_TIMER_DELAY_SEC"
    const char *TIMER_OUT_MS "CONGREVE_TIMER_OUT_MS"
    const char *RETRY_TOPIC "CONGREVE_RETRY_TOPIC"
    const char *RETRY_TOPIC_UNCHECKED "CONGREVE_RETRY_TOPIC_UNCHECKED"
    const char *ORIGIN_MESSAGE_ID "CONGREVE_ORIGIN_MESSAGE_ID"
    const char *RECONSUME_TIME "CONGREVE_RECONSUME_TIME"
    const char *MAX_RECONSUME_TIMES "CONGREVE_MAX_RECONSUME_TIMES"
    const char *TRANSACTION_PREPARED "CONGREVE_TRANSACTION_PREPARED"
    const char *PRODUCER_GROUP "CONGREVE_PRODUCER_GROUP"
    const char *TRANSACTION_PREPARED_QUEUE_OFFSET "CONGREVE_TRANSACTION_PREPARED_QUEUE_OFFSET"
    const char *TRANSACTION_CHECK_TIMES "CONGREVE_TRANSACTION_CHECK_TIMES"
    const char *INNER_MULTI_DISPATCH "CONGREVE_INNER_MULTI_DISPATCH"
    const char *INNER_MULTI_QUEUE_OFFSET "CONGREVE_INNER_MULTI_QUEUE_OFFSET"
    const char *POP_CK "CONGREVE_POP_CK"
    const char *FIRST_POP_TIME "CONGREVE_FIRST_POP_TIME"
    const char *ORIGIN_GROUP "CONGREVE_ORIGIN_GROUP"
    const char *DLQ_ORIGIN_TOPIC "CONGREVE_DLQ_ORIGIN_TOPIC"
    const char *DLQ_ORIGIN_MESSAGE_ID "CONGREVE_DLQ_ORIGIN_MESSAGE_ID"
    const char *LITE_TOPIC "CONGREVE_LITE_TOPIC"


cdef inline bint is_property(const uint8_t *at, const uint8_t *end,
                             const char *name) noexcept nogil:
    """Whether the property at `at` has this name, and something follows the separator."""
    cdef Py_ssize_t length = <Py_ssize_t> strlen(name)
    return (
        end - at > length + 1 and at[length] == NAME_VALUE_SEPARATOR
        and memcmp(at, name, length) == 0
    )


cdef inline bint is_set_by_brokers(const uint8_t *at, const uint8_t *end) noexcept nogil:
    """Whether the property at `at` has one of the names of SET_BY_BROKERS."""
    if at[0] == c"R":
        return (
            is_property(at, end, RETRY_TOPIC) or is_property(at, end, RETRY_TOPIC_UNCHECKED)
            or is_property(at, end, RECONSUME_TIME) or is_property(at, end, REAL_TOPIC)
            or is_property(at, end, REAL_QUEUE_ID)
        )
    if at[0] == c"T":
        return (
            is_property(at, end, TIMER_OUT_MS) or is_property(at, end, TRANSACTION_CHECK_TIMES)
            or is_property(at, end, TRANSACTION_PREPARED_QUEUE_OFFSET)
        )
    return (
        is_property(at, end, ORIGIN_MESSAGE_ID) or is_property(at, end, MAX_RECONSUME_TIMES)
        or is_property(at, end, INNER_MULTI_QUEUE_OFFSET)
    )


cdef inline uint8_t *put_name(uint8_t *out, const char *name) noexcept nogil:
    """The name and the separator after it."""
    cdef size_t length = strlen(name)
    memcpy(out, name, length)
    out[length] = NAME_VALUE_SEPARATOR
    return out + length + 1


cdef inline uint8_t *put_next_name(uint8_t *out, const char *name) noexcept nogil:
    """The same after another property."""
    out[0] = PROPERTY_SEPARATOR
    return put_name(out + 1, name)
