"""Topics that a broker keeps for itself, by name and kind (RocketMQ: TopicValidator, MixAll)."""

#: Its route and its settings are those of a topic that a send creates.
AUTO_CREATE_TOPIC_KEY_TOPIC = "TBW102"
BENCHMARK_TOPIC = "BenchmarkTest"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT_TOPIC = "OFFSET_MOVED_EVENT"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"

#: Queue n - 1 holds the messages of delay level n.
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
#: Messages with a deliver time of their own (RocketMQ 5: TimerMessageStore.TIMER_TOPIC).
TIMER_TOPIC = "rmq_sys_wheel_timer"
TIMER_QUEUE_ID = 0

TRANS_HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
#: Half messages that their producers never ended.
TRANS_CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
#: The one queue of each topic of transactions.
TRANS_QUEUE_ID = 0

#: What a group's retry topic is called, before the group's name.
RETRY_PREFIX = "%RETRY%"
#: The same for the topic of messages that a group could not consume.
DLQ_PREFIX = "%DLQ%"
#: Light message queues: their entries lead to records of other topics.
LIGHT_PREFIX = "%LMQ%"
SYSTEM_TOPIC_PREFIX = "rmq_sys_"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
#: The group whose offsets on the half and op topics say how far all transactions are ended.
TRANS_GROUP = SYSTEM_GROUP_PREFIX + "TRANS"

#: An entry in the queues of these says when to look at the message, not the hash of its tag.
PARKED = frozenset((SCHEDULE_TOPIC, TIMER_TOPIC))
#: Topics that a store keeps although no table of topics has them.
NEVER_UNUSED = PARKED | {TRANS_OP_HALF_TOPIC}

#: Topics that only brokers write to.
NOT_FOR_PRODUCERS = frozenset(
    (
        SCHEDULE_TOPIC,
        TIMER_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT_TOPIC,
    )
)
#: Topics that all tenants and all brokers know.
SYSTEM_TOPICS = NOT_FOR_PRODUCERS | {
    AUTO_CREATE_TOPIC_KEY_TOPIC,
    BENCHMARK_TOPIC,
    TRACE_TOPIC,
}


def retry_topic(group: str) -> str:
    """The topic of messages that the group shall get again."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """The topic of messages that the group could not consume."""
    return DLQ_PREFIX + group
