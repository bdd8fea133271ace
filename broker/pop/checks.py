"""The checks of requests of POP, in their order (RocketMQ: PopMessageProcessor)."""

from congreve.base.clock import Clock
from congreve.broker.config import PERM_READ, BrokerConfig
from congreve.broker.errors import RefusedError
from congreve.broker.metadata.metadata import Metadata
from congreve.broker.metadata.subscription import MessageFilter
from congreve.broker.pop.taking import Asked
from congreve.broker.pull.checks import consuming_group, known_topic
from congreve.broker.pull.subscriptions import PullSubscriptions
from congreve.records.layout import TOPIC_MAX
from congreve.records.message.topics import is_system_topic, stored_pop_retry_topic
from congreve.remoting.messages.codes import ResponseCode
from congreve.remoting.messages.pop_headers import (
    NotificationRequestHeader,
    PopMessageRequestHeader,
)
from congreve.remoting.wire.fast_headers import INVISIBLE_MAX_MS

LATE_MS = 500
"""How much later than its polling time a pop may arrive."""
MESSAGES_MAX = 32
INIT_MAX = 1
"""ConsumeInitMode.MAX."""


class PopChecks:
    """Checks pops, and acknowledgements; creates groups where that is allowed.

    A check that fails raises RefusedError with its code. (RocketMQ: PopMessageProcessor,
    AckMessageProcessor.)
    """

    def __init__(
        self,
        config: BrokerConfig,
        metadata: Metadata,
        subscriptions: PullSubscriptions,
        clock: Clock,
    ) -> None:
        self._config = config
        self._topics = metadata.topics
        self._groups = metadata.groups
        self._subscriptions = subscriptions
        self._clock = clock

    def pop(self, header: PopMessageRequestHeader) -> Asked:
        """What a pop asks for.

        Raises NotCompiledError for a filter that must be compiled first, as PullSubscriptions.
        """
        now = self._clock.now()
        if header.born_time > 0 and now - header.born_time > header.poll_time + LATE_MS:
            raise RefusedError(
                ResponseCode.POLLING_TIMEOUT,
                f"the broker[{self._config.broker_ip1}] pop message is timeout too much",
            )
        self._check_readable()
        if header.max_msg_nums > MESSAGES_MAX:
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"the broker[{self._config.broker_ip1}] pop message's num is greater than"
                f" {MESSAGES_MAX}",
            )
        queue_ids = self._queues(header.topic, header.queue_id)
        self._check_group(header.consumer_group, header.topic)
        if not 0 <= header.invisible_time <= INVISIBLE_MAX_MS:
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"invisibleTime[{header.invisible_time}] is not between 0 and {INVISIBLE_MAX_MS}",
            )
        wanted = MessageFilter()
        if header.exp:
            wanted = self._subscriptions.filter_of_expression(header.exp, header.exp_type)
        return Asked(
            group=header.consumer_group,
            topic=header.topic,
            queue_ids=queue_ids,
            most=header.max_msg_nums,
            invisible_ms=header.invisible_time,
            wanted=wanted,
            from_end=header.init_mode == INIT_MAX,
            ordered=header.order,
            attempt_id=header.attempt_id,
        )

    def notification(self, header: NotificationRequestHeader) -> Asked:
        """As pop(), for a request that takes nothing."""
        self._check_readable()
        queue_ids = self._queues(header.topic, header.queue_id)
        self._check_group(header.consumer_group, header.topic)
        return Asked(
            group=header.consumer_group,
            topic=header.topic,
            queue_ids=queue_ids,
            most=1,
            invisible_ms=0,
            wanted=MessageFilter(),
            ordered=header.order,
            attempt_id=header.attempt_id,
        )

    def readable_queue(self, topic: str, queue_id: int) -> None:
        """Check the queue of a request that takes nothing."""
        self._check_readable()
        self._queues(topic, queue_id)

    def known_queue(self, topic: str, queue_id: int) -> None:
        """Check the queue of an acknowledgement."""
        self._check_master()
        known = known_topic(self._topics, topic)
        if not 0 <= queue_id < known.read_queue_nums:
            raise RefusedError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"queueId{queue_id} is illegal, topic:[{topic}]"
                f" topicConfig.readQueueNums:[{known.read_queue_nums}]",
            )

    def _check_master(self) -> None:
        if self._config.is_slave:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._config.broker_ip1}] is a slave: pop from its master",
            )

    def _check_readable(self) -> None:
        self._check_master()
        if not self._config.readable:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._config.broker_ip1}] pop message is forbidden"
                f" (brokerPermission {self._config.broker_permission})",
            )

    def _queues(self, topic: str, queue_id: int) -> tuple[int, ...]:
        known = known_topic(self._topics, topic)
        if not known.perm & PERM_READ:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the topic[{topic}] peeking message is forbidden (perm {known.perm})",
            )
        if queue_id >= known.read_queue_nums:
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{queue_id}] is illegal, topic:[{topic}]"
                f" topicConfig.readQueueNums:[{known.read_queue_nums}]",
            )
        return tuple(range(known.read_queue_nums)) if queue_id < 0 else (queue_id,)

    def _check_group(self, name: str, topic: str) -> None:
        consuming_group(self._groups, name)
        size = len(stored_pop_retry_topic(name, topic).encode())
        if is_system_topic(topic) or size > TOPIC_MAX:
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"the retry topic of group[{name}] and topic[{topic}] cannot exist: its name of"
                f" {size} bytes is longer than {TOPIC_MAX}, or the topic is the broker's own",
            )
