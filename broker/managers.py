"""The broker's state: metadata, members of groups, delays, transactions, figures."""

import asyncio
import time
from collections.abc import Callable

from congreve.base.clock import Clock
from congreve.broker.commit.group_commit import GroupCommit
from congreve.broker.config import BrokerConfig
from congreve.broker.delay.service import DelayedMessages
from congreve.broker.delay.targets import Targets
from congreve.broker.figures.stats import BrokerStats
from congreve.broker.group.members import Members
from congreve.broker.lite.lites import Lites
from congreve.broker.metadata.metadata import Metadata
from congreve.broker.metadata.state_files import StateFiles
from congreve.broker.metadata.topic_deletion import TopicDeletion
from congreve.broker.metadata.topic_recovery import TopicRecovery
from congreve.broker.pop.ack_processor import AckMessageProcessor
from congreve.broker.pop.lane_service import PopLanes
from congreve.broker.pop.processor import PopMessageProcessor
from congreve.broker.pop.processors import pop_processors
from congreve.broker.pop.service import Pops
from congreve.broker.pull.pull_quota import PullQuota
from congreve.broker.send.shown_log import ShownLog
from congreve.broker.transaction.transactions import Transactions
from congreve.engine.state.broker_name import BrokerNameFile
from congreve.engine.store import MessageStore
from congreve.records.message.topics import UNDELIVERABLE_TOPIC
from congreve.remoting.loop.pieces import Pieces


class Managers:
    """All managers of one broker (RocketMQ: the fields of BrokerController)."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        clock: Clock,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config
        self.store = store
        self.clock = clock
        self.pieces = Pieces()
        self.metadata = Metadata(config, clock, self.pieces, store.files)
        self.files = StateFiles(config.store, self.metadata, store.files)
        self.members = Members(config, self.metadata, clock, self.pieces, monotonic)
        self.topic_deletion = TopicDeletion(
            *(self.metadata.topics, self.metadata.deleted_topics, store),
            readers_of=self.members.consumers.sharing,
        )
        self.stats = BrokerStats(clock, lambda: store.queues, monotonic, config.broker_cluster_name)
        topics = self.metadata.topics
        targets = Targets(
            undeliverable=lambda: topics.create_internal(UNDELIVERABLE_TOPIC, 1),
            present_queue=topics.present_queue,
            first_files=store.first_files,
        )
        self.delayed = DelayedMessages(store, clock, targets)
        self.transactions = Transactions(
            config=config,
            metadata=self.metadata,
            producers=self.members.producers,
            store=store,
            clock=clock,
        )
        self.pops = Pops(
            *(config, self.metadata, store, self.stats, clock),
            has_members=self.members.consumers.groups.__contains__,
            pull_retries=self.members.consumers.pull_retries,
        )
        self.pop_lanes = PopLanes(
            self.pops, store, clock, config.broker_name, config.network_threads
        )
        self.lites = Lites(config, self.metadata, store, clock, self.pops, self.stats, self.pieces)
        self.shown = ShownLog(store.log)
        self._topic_recovery = TopicRecovery(self.metadata, store, self.files.topics_path)
        self._loaded = False

    def pop_processors(
        self, group_commit: GroupCommit, quota: PullQuota
    ) -> tuple[PopMessageProcessor, AckMessageProcessor]:
        """The processors of pops, whose answers wait for `group_commit`."""
        pops, acks = pop_processors(
            config=self.config,
            metadata=self.metadata,
            consumers=self.members.consumers,
            store=self.store,
            stats=self.stats,
            clock=self.clock,
            pops=self.pops,
            group_commit=group_commit,
            quota=quota,
        )
        acks.light_of = self.lites.topics.light_of
        return pops, acks

    async def load(self) -> None:
        """Read all files; the store is open. Raises StoreError when a file cannot be used."""
        self._topic_recovery.run(self.files.load(), follows=self.config.is_slave)
        name = BrokerNameFile(self.config.store.own_dir, files=self.store.files)
        await asyncio.to_thread(name.keep, self.config.broker_name)
        await asyncio.to_thread(self.delayed.load)
        await asyncio.to_thread(self.transactions.load)
        await self.pops.load()
        await self.lites.load()
        self._loaded = True

    async def start(self) -> None:
        """Start delayed delivery and transaction checks; a slave does neither."""
        if not self.config.is_slave:
            await self.delayed.start()
        self.transactions.start()
        self.pops.start()
        self.lites.start()

    async def stop(self) -> None:
        """Save all state; it is on disk when this returns, and the store is still open. Idempotent.

        Nothing is written when loading failed: the files hold more than memory.
        """
        await self.members.stop()
        if not self._loaded:
            return
        self.lites.stop()
        await self.pops.stop()
        await self.delayed.stop()
        await self.transactions.stop()
        await self.topic_deletion.checkpoints.finish()
        await self.files.close()

    def save_offsets(self) -> None:
        """Write the offsets of groups and transactions soon."""
        self.transactions.save()
        self.files.save_offsets()

    def trouble(self) -> str | None:
        """Which files cannot be written, and why; None when all changes are or will be on disk."""
        files = (
            *self.files.all,
            *self.delayed.files,
            *self.transactions.files,
            self.topic_deletion.checkpoints,
            self.pops.journal.writer,
        )
        return "; ".join(file.trouble for file in files if file.trouble is not None) or None
