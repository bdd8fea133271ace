"""What topics this broker has (RocketMQ: TopicConfigManager, TopicValidator)."""

import logging
import re
from collections.abc import Callable, Iterable

import msgspec

from congreve.broker.config import PERM_INHERIT, PERM_READ, PERM_WRITE, BrokerConfig
from congreve.engine.clock import Clock
from congreve.remoting import fastjson
from congreve.remoting.bodies import DataVersion, TopicConfig, TopicConfigSerializeWrapper

logger = logging.getLogger(__name__)

AUTO_CREATE_TOPIC_KEY_TOPIC = "TBW102"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
SCHEDULE_TOPIC_QUEUES = 18
TIMER_TOPIC = "rmq_sys_wheel_timer"
BENCHMARK_TOPIC = "BenchmarkTest"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT_TOPIC = "OFFSET_MOVED_EVENT"
TRANS_HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
SYSTEM_TOPIC_PREFIX = "rmq_sys_"

TOPIC_NAME_MAX = 127
QUEUES_MAX = 65_536  # of one topic, against slips of a tool
_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")

_NOT_FOR_PRODUCERS = frozenset(
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
_SYSTEM_TOPICS = _NOT_FOR_PRODUCERS | {
    AUTO_CREATE_TOPIC_KEY_TOPIC,
    BENCHMARK_TOPIC,
    TRACE_TOPIC,
}

TopicListener = Callable[[str, TopicConfig | None], None]


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    return DLQ_PREFIX + group


def topic_name_fault(topic: str) -> str | None:
    """What is wrong with a topic's name, or None (TopicValidator.validateTopic)."""
    if not topic.strip():
        return "The specified topic is blank"
    if not _NAME.fullmatch(topic):
        return (
            f"The specified topic contains illegal characters: [{topic}];"
            " % | a-z A-Z 0-9 _ - are allowed"
        )
    if len(topic) > TOPIC_NAME_MAX:
        return (
            f"The specified topic[{topic}] is longer than {TOPIC_NAME_MAX} characters: {len(topic)}"
        )
    return None


def forbidden_for_producers(topic: str) -> bool:
    """True for the broker's own topics (TopicValidator.isNotAllowedSendTopic)."""
    return topic in _NOT_FOR_PRODUCERS


class TopicConfigManager:
    """The topic table. A TopicConfig in it is never edited in place, always replaced.

    `changed` is called after each change that must reach topics.json; listeners are told
    (name, new config or None) and may refuse nothing.
    """

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self.changed: Callable[[], None] = _nobody_cares
        self._listeners: list[TopicListener] = []
        self.table: dict[str, TopicConfig] = {t.topic_name: t for t in _built_in(config)}
        self.data_version = DataVersion(counter=0, timestamp=clock.now())

    def listen(self, listener: TopicListener) -> None:
        """From now on tell `listener` of each change; it is told all present topics at once."""
        self._listeners.append(listener)
        for name, config in self.table.items():
            listener(name, config)

    def tell_again(self) -> None:
        """Tell listeners all topics anew: a setting changed that they depend on."""
        for name, config in self.table.items():
            self._tell(name, config)
        self.version_changed()

    def get(self, topic: str) -> TopicConfig | None:
        return self.table.get(topic)

    def is_order_topic(self, topic: str) -> bool:
        config = self.table.get(topic)
        return config is not None and config.order

    def is_system_topic(self, topic: str) -> bool:
        return topic in self.system_topics() or topic.startswith(SYSTEM_TOPIC_PREFIX)

    def system_topics(self) -> frozenset[str]:
        config = self._config
        names = {config.broker_cluster_name, config.broker_name, reply_topic(config)}
        if config.trace_topic_enable:
            names.add(config.msg_trace_topic_name)
        return _SYSTEM_TOPICS | names

    def takes_ordinary_sends(self, config: TopicConfig) -> bool:
        """True when a send needs no check but that of its queue id: what compiled code may do."""
        name = config.topic_name
        return (
            topic_name_fault(name) is None
            and not forbidden_for_producers(name)
            and not name.startswith(RETRY_PREFIX)
            and config.topic_filter_type == "SINGLE_TAG"
            and (self._config.writable or not config.order)
            and self._clock.now() >= self._config.start_accept_send_request_time_stamp
        )

    def create_on_send(
        self, topic: str, default_topic: str, queue_nums: int, sys_flag: int = 0
    ) -> TopicConfig | None:
        """The topic, made from `default_topic` where that exists and may be inherited."""
        known = self.table.get(topic)
        if known is not None:
            return known
        template = self.table.get(default_topic)
        if template is None or not template.perm & PERM_INHERIT:
            return None
        if default_topic == AUTO_CREATE_TOPIC_KEY_TOPIC and not (
            self._config.auto_create_topic_enable
        ):
            return None
        queues = max(0, min(queue_nums, template.write_queue_nums))
        created = TopicConfig(
            topic_name=topic,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=template.perm & ~PERM_INHERIT,
            topic_filter_type=template.topic_filter_type,
            topic_sys_flag=sys_flag,
        )
        logger.info("topic %s created from %s with %d queues", topic, default_topic, queues)
        self.update(created)
        return created

    def create_internal(
        self, topic: str, queue_nums: int, perm: int = PERM_READ | PERM_WRITE, sys_flag: int = 0
    ) -> TopicConfig:
        """The topic, made where absent: retry and dead-letter topics and the broker's own."""
        known = self.table.get(topic)
        if known is not None:
            return known
        created = TopicConfig(
            topic_name=topic,
            read_queue_nums=queue_nums,
            write_queue_nums=queue_nums,
            perm=perm,
            topic_sys_flag=sys_flag,
        )
        self.update(created)
        return created

    def update(self, config: TopicConfig) -> None:
        """Add or replace a topic."""
        self.table[config.topic_name] = config
        self._tell(config.topic_name, config)
        self.version_changed()

    def delete(self, topic: str) -> bool:
        """False when there was no such topic."""
        if self.table.pop(topic, None) is None:
            return False
        self._tell(topic, None)
        self.version_changed()
        return True

    def update_order_topics(self, order_topics: Iterable[str]) -> None:
        """Take the name servers' list of ordered topics: exactly those are ordered."""
        ordered = set(order_topics)
        stale = [t for t in self.table.values() if t.order != (t.topic_name in ordered)]
        for old in stale:
            new = msgspec.structs.replace(old, order=not old.order)
            self.table[new.topic_name] = new
            self._tell(new.topic_name, new)
        if stale:
            self.version_changed()

    def wrapper(self) -> TopicConfigSerializeWrapper:
        """The whole table: body of code 21, content of topics.json, part of a registration."""
        return TopicConfigSerializeWrapper(
            data_version=msgspec.structs.replace(self.data_version),
            topic_config_table=dict(self.table),
        )

    def load(self, text: str) -> None:
        """Take what topics.json holds on top of the built-in topics."""
        stored = TopicConfigSerializeWrapper.from_tree(fastjson.loads(text))
        self.table |= stored.topic_config_table
        self.data_version = stored.data_version
        for name, config in self.table.items():
            self._tell(name, config)

    def _tell(self, name: str, config: TopicConfig | None) -> None:
        for listener in self._listeners:
            listener(name, config)

    def version_changed(self) -> None:
        """A new data version: name servers take the table again, topics.json is written."""
        self.data_version = DataVersion(
            counter=self.data_version.counter + 1, timestamp=self._clock.now()
        )
        self.changed()


def reply_topic(config: BrokerConfig) -> str:
    return f"{config.broker_cluster_name}_REPLY_TOPIC"


def _built_in(config: BrokerConfig) -> list[TopicConfig]:
    usual = PERM_READ | PERM_WRITE

    def template(enabled: bool) -> int:
        return PERM_INHERIT | (usual if enabled else 0)

    rows = [
        (SELF_TEST_TOPIC, 1, usual),
        (BENCHMARK_TOPIC, 1024, usual),
        (config.broker_cluster_name, 16, template(config.cluster_topic_enable)),
        (config.broker_name, 1, template(config.broker_topic_enable)),
        (OFFSET_MOVED_EVENT_TOPIC, 1, usual),
        (SCHEDULE_TOPIC, SCHEDULE_TOPIC_QUEUES, usual),
        (reply_topic(config), 1, usual),
    ]
    if config.auto_create_topic_enable:
        rows.append((AUTO_CREATE_TOPIC_KEY_TOPIC, config.default_topic_queue_nums, template(True)))
    if config.trace_topic_enable:
        rows.append((config.msg_trace_topic_name, 1, usual))
    return [
        TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
        for name, queues, perm in rows
    ]


def _nobody_cares() -> None:
    """What a manager without a file calls."""
