from collections.abc import Callable
from typing import final

from congreve.broker.config import BrokerConfig
from congreve.broker.figures.pull_counter import PullCounter
from congreve.engine.pop.in_flight import PopWindow
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.read.gather import TagFilter
from congreve.records.filter.record_filter import RecordFilter
from congreve.remoting.messages.bodies import SubscriptionGroupConfig, TopicConfig

@final
class WaitCounter:
    def __init__(self, total: WaitCounter | None) -> None: ...
    on_loop: int
    @property
    def in_lanes(self) -> int: ...

@final
class PopPlan:
    def __init__(
        self,
        *,
        group: SubscriptionGroupConfig,
        topic: TopicConfig,
        retry_topics: dict[str, TopicConfig | None],
        places: list[tuple[str, str, int]],
        windows: list[PopWindow | None],
        queues: list[ConsumeQueue],
        kinds: list[int],
        retries: int,
        by_priority: bool,
        tags: TagFilter | None,
        records: RecordFilter | None,
        counter: PullCounter,
        waiting: WaitCounter,
    ) -> None: ...

@final
class PopPlans:
    def __init__(
        self,
        *,
        config: BrokerConfig,
        groups: dict[str, SubscriptionGroupConfig],
        topics: dict[str, TopicConfig],
        pulled: dict[tuple[str, str], int],
        find: Callable[[str, str, int], PopWindow | None],
        committed: Callable[[str, str, int], int],
    ) -> None: ...
    def has(self, key: bytes) -> bool: ...
    def keep(self, key: bytes, plan: PopPlan) -> None: ...
    def note_offset(self, place: tuple[str, str, int], committed: int) -> bool: ...
    def clear(self) -> None: ...
    def note_change(self, *_: object) -> None: ...

def pop_key(
    group: str, topic: str, queue_id: int, expression: str | None, expression_type: str | None
) -> bytes | None: ...
