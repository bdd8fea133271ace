"""Names of message properties that the broker and its clients agree on (RocketMQ: MessageConst)."""

KEYS = "KEYS"
TAGS = "TAGS"
WAIT = "WAIT"
UNIQ_KEY = "UNIQ_KEY"
CLUSTER = "CLUSTER"

DELAY = "DELAY"
REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE_ID = "REAL_QID"

# From 0 upwards; the queue of a message follows from it (RocketMQ 5.4).
PRIORITY = "_SYS_MSG_PRIORITY_"

# The delivery time of a message (RocketMQ 5): the sender's three forms, and the broker's result.
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
TIMER_OUT_MS = "TIMER_OUT_MS"
TIMER_DEL_UNIQUE_KEY = "TIMER_DEL_UNIQKEY"

RETRY_TOPIC = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME = "RECONSUME_TIME"
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
CONSUME_START_TIMESTAMP = "CONSUME_START_TIME"
MIN_OFFSET = "MIN_OFFSET"
MAX_OFFSET = "MAX_OFFSET"
BUYER_ID = "BUYER_ID"

TRANSACTION_PREPARED = "TRAN_MSG"
PRODUCER_GROUP = "PGROUP"
TRANSACTION_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
CHECK_IMMUNITY_TIME = "CHECK_IMMUNITY_TIME_IN_SECONDS"

CORRELATION_ID = "CORRELATION_ID"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
REPLY_TTL = "TTL"
REPLY_MESSAGE_ARRIVE_TIME = "ARRIVE_TIME"
MESSAGE_TYPE = "MSG_TYPE"
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"

INSTANCE_ID = "INSTANCE_ID"
TRACE_SWITCH = "TRACE_ON"
MSG_REGION = "MSG_REGION"

INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"

# Of messages that a broker hands out one by one (RocketMQ 5, POP).
POP_CK = "POP_CK"
FIRST_POP_TIME = "1ST_POP_TIME"
ORIGIN_GROUP = "ORIGIN_GROUP"
DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"

# The broker marks a copy whose sender may not write to the topic in RETRY_TOPIC.
RETRY_TOPIC_UNCHECKED = "RETRY_TOPIC_UNCHECKED"

NAMES = frozenset(value for name, value in tuple(globals().items()) if name.isupper())
"""All of these, which users cannot have."""

SET_IN_COPIES = frozenset((RETRY_TOPIC, ORIGIN_MESSAGE_ID, RECONSUME_TIME, MAX_RECONSUME_TIMES))
"""Set by brokers, and by consumers that send a copy of a message to their retry topic."""

SET_BY_BROKERS = SET_IN_COPIES | {
    RETRY_TOPIC_UNCHECKED,
    REAL_TOPIC,
    REAL_QUEUE_ID,
    TIMER_OUT_MS,
    TRANSACTION_PREPARED_QUEUE_OFFSET,
    TRANSACTION_CHECK_TIMES,
    INNER_MULTI_QUEUE_OFFSET,
}
"""Set by brokers alone; producers that send a message again have some of them."""

# Set by producers of ordered messages; users may set it, too.
SHARDING_KEY = "__SHARDINGKEY"
# Set by the broker for senders that use gRPC (RocketMQ 5).
BORN_HOST = "__BORNHOST"
BORN_TIMESTAMP = "BORN_TIMESTAMP"
TRACE_CONTEXT = "TRACE_CONTEXT"
LITE_TOPIC = "__LITE_TOPIC"

RESERVED_BY_GRPC = NAMES | {
    *(BORN_HOST, BORN_TIMESTAMP, PRIORITY, LITE_TOPIC),
    *("TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG", "POP_CK_OFFSET", "DUP_INFO"),
    *("EXTEND_UNIQ_INFO", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES"),
    *("TIMER_DELAY_LEVEL", "__CRC32#"),
}
"""Names of properties that a user of gRPC cannot set (RocketMQ 5.5: MessageConst)."""

# The prefix of all names of delivery times.
TIMER_PREFIX = "TIMER_"
# The separator of several keys in KEYS.
KEY_SEPARATOR = " "

_MAX_DIGITS = 18


def natural(text: str) -> int | None:
    """The value of a property as a number; None unless it is decimal with at most 18 digits."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS
    return int(text) if is_number else None
