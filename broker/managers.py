"""What a broker knows: topics, groups, clients, progress, and the files that it is kept in."""

import asyncio
from pathlib import Path

from congreve.broker.broker2client import notify_consumer_ids_changed
from congreve.broker.config import BrokerConfig
from congreve.broker.consumers import ConsumerManager
from congreve.broker.delayed import DelayedMessages
from congreve.broker.filters import ConsumerFilterManager
from congreve.broker.groups import SubscriptionGroupManager
from congreve.broker.locks import RebalanceLockManager
from congreve.broker.offsets import ConsumerOffsetManager
from congreve.broker.producers import ProducerManager
from congreve.broker.statewriter import StateWriter
from congreve.broker.stats import BrokerStats
from congreve.broker.topics import TopicConfigManager
from congreve.broker.transactions import Transactions
from congreve.engine.clock import Clock
from congreve.engine.statefile import StateFile
from congreve.engine.store import MessageStore
from congreve.remoting.connection import Connection

_Saved = (
    TopicConfigManager | SubscriptionGroupManager | ConsumerOffsetManager | ConsumerFilterManager
)


class Managers:
    """All managers of one broker (RocketMQ: the fields of BrokerController)."""

    def __init__(self, config: BrokerConfig, store: MessageStore, clock: Clock) -> None:
        self.topics = TopicConfigManager(config, clock)
        self.groups = SubscriptionGroupManager(config, clock)
        self.offsets = ConsumerOffsetManager()
        self.filters = ConsumerFilterManager(clock)
        self.consumers = ConsumerManager(clock, self._notify_members, self.filters.unregister)
        self.producers = ProducerManager(clock)
        self.locks = RebalanceLockManager(
            clock, config.rebalance_lock_max_live_time, self._queues_freed
        )
        self.stats = BrokerStats(clock, lambda: store.queues)
        self.delayed = DelayedMessages(store, clock)
        self.transactions = Transactions(
            config=config,
            topics=self.topics,
            producers=self.producers,
            offsets=self.offsets,
            store=store,
            clock=clock,
        )
        self._config = config
        self._saved: dict[str, _Saved] = {
            "topics.json": self.topics,
            "subscriptionGroup.json": self.groups,
            "consumerOffset.json": self.offsets,
            "consumerFilter.json": self.filters,
        }
        folder = Path(config.store.config_dir)
        self._files = {name: StateFile(str(folder / name)) for name in self._saved}
        self._writers = [
            StateWriter(self._files[name], manager.wrapper) for name, manager in self._saved.items()
        ]
        self.topics_file, self.groups_file, self._offsets_file, filters_file = self._writers
        self.topics.changed = self.topics_file.changed
        self.groups.changed = self.groups_file.changed
        self.filters.changed = filters_file.changed

    async def load(self) -> None:
        """Read all files; the store is open. StoreError."""
        for name, manager in self._saved.items():
            self._files[name].load(manager.load)
        self.delayed.load()
        await asyncio.to_thread(self.transactions.load)

    async def start(self) -> None:
        """Deliver what is due and ask for what is open from now on; a slave leaves that alone."""
        if not self._config.is_slave:
            await self.delayed.start()
        self.transactions.start()

    async def stop(self) -> None:
        """What is in memory is on disk when it returns; the store is still open. Idempotent."""
        await self.delayed.stop()
        await self.transactions.stop()
        self.save_offsets()
        for writer in self._writers:
            await writer.settled()

    def save_offsets(self) -> None:
        """Note soon how far groups and transactions have come."""
        self.transactions.save()
        if self.offsets.dirty:
            self.offsets.dirty = False
            self._offsets_file.changed()

    def _notify_members(self, group: str, members: list[Connection]) -> None:
        if self._config.notify_consumer_ids_changed_enable:
            notify_consumer_ids_changed(group, members)

    def _queues_freed(self, group: str, clients: set[str]) -> None:
        online, settings = self.consumers.groups.get(group), self.groups.table.get(group)
        told = settings is None or settings.notify_consumer_ids_changed_enable
        if online is not None and told:
            channels = online.channels.values()
            self._notify_members(group, [c.connection for c in channels if c.client_id in clients])

    def connection_closed(self, connection: Connection) -> None:
        """Whoever was on it is gone."""
        self.consumers.connection_closed(connection)
        self.producers.connection_closed(connection)
