from collections.abc import Mapping
from typing import final

from congreve.broker.config import BrokerConfig
from congreve.broker.figures.pull_counter import PullCounter
from congreve.broker.group.consumers import ConsumerGroup
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.read.gather import TagFilter
from congreve.records.filter.record_filter import RecordFilter
from congreve.remoting.messages.admin_bodies import SubscriptionData
from congreve.remoting.messages.bodies import SubscriptionGroupConfig, TopicConfig

@final
class PullPlan:
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
class PullPlans:
    def __init__(
        self,
        *,
        config: BrokerConfig,
        groups: Mapping[str, SubscriptionGroupConfig],
        topics: Mapping[str, TopicConfig],
        consumers: Mapping[str, ConsumerGroup],
    ) -> None: ...
    def keep(self, frame: bytes, plan: PullPlan) -> bool: ...
    def forget(self, asked: set[tuple[str, str]]) -> None: ...
    def note_change(self, *_: object) -> None: ...
