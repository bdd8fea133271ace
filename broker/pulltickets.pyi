from collections.abc import Mapping
from typing import final

from congreve.broker.config import BrokerConfig
from congreve.broker.consumers import ConsumerGroup
from congreve.broker.offsets import ConsumerOffsetManager
from congreve.engine.consumequeue import ConsumeQueue
from congreve.engine.reader import TagFilter
from congreve.records.recordfilter import RecordFilter
from congreve.remoting.bodies import SubscriptionData, SubscriptionGroupConfig, TopicConfig

@final
class PullCounter:
    """What one group pulled from one topic; compiled code counts here without Python objects."""

    def __init__(self) -> None: ...
    @property
    def pulls(self) -> int:
        """Pulls that found something."""

    @property
    def messages(self) -> int: ...
    @property
    def size(self) -> int:
        """Bytes of whole records."""

    def add(self, messages: int, size: int) -> None:
        """One more pull was answered with so much."""

@final
class PullTicket:
    """What the checks of one kind of pull looked at, for as long as all of it is unchanged.

    `subscription` is None where the request brings its own; `tags` and `records` None let
    all messages pass.
    """

    def __init__(
        self,
        *,
        group: SubscriptionGroupConfig,
        topic: TopicConfig,
        subscription: SubscriptionData | None,
        message_model: str,
        queue: ConsumeQueue,
        tags: TagFilter | None,
        records: RecordFilter | None,
        counter: PullCounter,
    ) -> None: ...
    @property
    def group(self) -> SubscriptionGroupConfig: ...
    @property
    def topic(self) -> TopicConfig: ...
    @property
    def subscription(self) -> SubscriptionData | None: ...
    @property
    def message_model(self) -> str: ...
    @property
    def queue(self) -> ConsumeQueue: ...
    @property
    def tags(self) -> TagFilter | None: ...
    @property
    def records(self) -> RecordFilter | None: ...
    @property
    def counter(self) -> PullCounter: ...

@final
class PullTickets:
    """Tickets by what the checks of a pull depend on; at most 100,000.

    The tables are those of their managers: they are looked into, not copied.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        offsets: ConsumerOffsetManager,
        groups: Mapping[str, SubscriptionGroupConfig],
        topics: Mapping[str, TopicConfig],
        consumers: Mapping[str, ConsumerGroup],
    ) -> None: ...
