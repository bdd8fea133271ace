"""System topics by name and kind (RocketMQ: TopicValidator, MixAll)."""

from hashlib import blake2b

from congreve.records import layout

#: A topic that a send creates takes its route and settings from this one.
AUTO_CREATE_TOPIC_KEY_TOPIC = "TBW102"
BENCHMARK_TOPIC = "BenchmarkTest"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT_TOPIC = "OFFSET_MOVED_EVENT"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"

#: Queue n - 1 holds the messages of delay level n.
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
#: Timed messages (RocketMQ 5: TimerMessageStore.TIMER_TOPIC).
TIMER_TOPIC = "rmq_sys_wheel_timer"
TIMER_QUEUE_ID = 0
#: Delayed messages that were taken back: the journal of recalls.
RECALL_TOPIC = "rmq_sys_recalled_messages"
#: What pops have taken, and what became of it: the journal of pops.
POP_TOPIC = "rmq_sys_congreve_pops"
#: Messages whose target cannot hold them, with that target in their properties.
UNDELIVERABLE_TOPIC = "rmq_sys_undeliverable_messages"

TRANS_HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
#: Half messages whose checks are used up.
TRANS_CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
#: The one queue of each topic of transactions.
TRANS_QUEUE_ID = 0

#: The prefix of a group's retry topic.
RETRY_PREFIX = "%RETRY%"
_V2_SEPARATOR = "+"
#: The prefix of a group's dead-letter topic.
DLQ_PREFIX = "%DLQ%"
#: The prefix of the topic that records which dead letters of a group were resent; it is no longer
#: than that of the group's retry topic.
RESENT_PREFIX = "RESENT_"
#: Light message queues: their entries lead to records of other topics.
LIGHT_PREFIX = "%LMQ%"
_LIGHT_SEPARATOR = "$"
SYSTEM_TOPIC_PREFIX = "rmq_sys_"
#: The journals of pops of RocketMQ 5.
REVIVE_PREFIX = SYSTEM_TOPIC_PREFIX + "REVIVE_LOG_"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
#: Groups that every broker has.
SYSTEM_GROUPS = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
)
#: The group of the `congreve` command's producers and consumers.
COMMAND_GROUP = "CONGREVE_CLI"
#: The group whose offsets on the half and op topics are the end of completed transactions.
TRANS_GROUP = SYSTEM_GROUP_PREFIX + "TRANS"

#: Their queue entries hold the time to process the message instead of the hash of its tag.
PARKED = frozenset((SCHEDULE_TOPIC, TIMER_TOPIC))
#: Topics that a store keeps even if the table of topics lacks them.
NEVER_UNUSED = PARKED | {TRANS_OP_HALF_TOPIC, RECALL_TOPIC, POP_TOPIC}

#: Topics that only brokers may write to.
NOT_FOR_PRODUCERS = frozenset(
    (
        SCHEDULE_TOPIC,
        TIMER_TOPIC,
        RECALL_TOPIC,
        POP_TOPIC,
        UNDELIVERABLE_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT_TOPIC,
    )
)
#: Topics in which brokers keep messages of other topics, and notes about them; accounts read such a
#: message only as one of its real topic.
NOT_FOR_CONSUMERS = PARKED | {
    RECALL_TOPIC,
    POP_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
}
#: Topics that all namespaces share and every broker has.
SYSTEM_TOPICS = NOT_FOR_PRODUCERS | {
    AUTO_CREATE_TOPIC_KEY_TOPIC,
    BENCHMARK_TOPIC,
    TRACE_TOPIC,
}


def is_system_topic(topic: str) -> bool:
    """Whether a topic is RocketMQ's own or Congreve's by its name."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_system_group(group: str) -> bool:
    """Whether a group is RocketMQ's own or Congreve's by its name."""
    return group in (*SYSTEM_GROUPS, COMMAND_GROUP) or group.startswith(SYSTEM_GROUP_PREFIX)


def retry_topic(group: str) -> str:
    """The retry topic of a group."""
    return RETRY_PREFIX + group


def pop_retry_topic(group: str, topic: str) -> str:
    """The topic from which a group pops again what its members popped from `topic` and did not
    acknowledge (RocketMQ 5: KeyBuilder.buildPopRetryTopicV1)."""
    return f"{RETRY_PREFIX}{group}_{topic}"


def stored_pop_retry_topic(group: str, topic: str) -> str:
    """pop_retry_topic() as the broker names it: with a digest of the group instead, where records
    have no room for the name."""
    name = pop_retry_topic(group, topic)
    if len(name.encode()) > layout.TOPIC_MAX:
        name = pop_retry_topic(_digest(group), topic)
    return name


def pop_retry_prefixes(group: str) -> tuple[str, ...]:
    """How the names of a group's topics begin from which it pops again, in all their forms."""
    return (
        pop_retry_topic(group, ""),
        pop_retry_topic_v2(group, ""),
        pop_retry_topic(_digest(group), ""),
    )


def _digest(group: str) -> str:
    return blake2b(group.encode(), digest_size=8).hexdigest()


def light_topic(parent: str, lite: str) -> str:
    """The name of a lite topic of a parent topic among all topics (RocketMQ 5.5:
    LiteUtil.toLmqName)."""
    return f"{LIGHT_PREFIX}{_LIGHT_SEPARATOR}{parent}{_LIGHT_SEPARATOR}{lite}"


def is_light(topic: str) -> bool:
    """Whether `topic` is the name of a light message queue."""
    return topic.startswith(LIGHT_PREFIX)


def lite_of(topic: str) -> tuple[str, str] | None:
    """The parent topic and the lite topic of a light_topic(); None for any other topic."""
    if not is_light(topic):
        return None
    parts = topic.split(_LIGHT_SEPARATOR, 2)
    return (parts[1], parts[2]) if len(parts) == 3 else None


def popped_topic(group: str, topic: str) -> str:
    """The topic whose messages a group's pop_retry_topic() has, under each form of its name, or
    that of a light_topic(); any other topic itself."""
    if (lite := lite_of(topic)) is not None:
        return lite[0]
    if not topic.startswith(RETRY_PREFIX):
        return topic
    for prefix in pop_retry_prefixes(group):
        if topic.startswith(prefix):
            return topic.removeprefix(prefix)
    return topic


def pop_retry_topic_v2(group: str, topic: str) -> str:
    """The name that brokers with enableRetryTopicV2 give it (RocketMQ 5:
    KeyBuilder.buildPopRetryTopicV2)."""
    return f"{RETRY_PREFIX}{group}{_V2_SEPARATOR}{topic}"


def is_pop_retry_topic_v2(topic: str) -> bool:
    """Whether `topic` is a result of pop_retry_topic_v2(): no other topic has its separator."""
    return topic.startswith(RETRY_PREFIX) and _V2_SEPARATOR in topic


def dlq_topic(group: str) -> str:
    """The dead-letter topic of a group."""
    return DLQ_PREFIX + group


def resent_topic(group: str) -> str:
    """The topic that records which dead letters of a group were resent."""
    return RESENT_PREFIX + group
