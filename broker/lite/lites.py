"""Everything that a broker has of lite topics (RocketMQ 5.5: RIP-83)."""

from collections.abc import Callable

from congreve.base.clock import Clock
from congreve.broker.config import BrokerConfig
from congreve.broker.figures.stats import BrokerStats
from congreve.broker.lite.lite_topics import LiteTopics
from congreve.broker.lite.starts import LiteStarts
from congreve.broker.lite.subscriptions import LiteSubscriptions
from congreve.broker.lite.taking import LiteTaking
from congreve.broker.metadata.metadata import Metadata
from congreve.broker.pop.service import Pops
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.store import MessageStore
from congreve.remoting.loop.pieces import Pieces


class Lites:
    """The lite topics of one broker, who subscribes to them, and what they take.

    (RocketMQ 5.5: BrokerController.)
    """

    def __init__(
        self,
        config: BrokerConfig,
        metadata: Metadata,
        store: MessageStore,
        clock: Clock,
        pops: Pops,
        stats: BrokerStats,
        pieces: Pieces,
    ) -> None:
        self.topics = LiteTopics(config, metadata, store, clock, pops, pieces)
        starts = LiteStarts(self.topics, pops, store)
        self.subscriptions = LiteSubscriptions(config, metadata.groups, self.topics, starts)
        self.taking = LiteTaking(self.topics, self.subscriptions, starts, pops, stats, clock)
        self.load = self.topics.load
        self.start = self.topics.start
        self.stop = self.topics.stop
        self.arrived: Callable[[ConsumeQueue], None] = self.topics.arrived
        self.shown = self.topics.shown
