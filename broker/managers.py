"""The broker's state: topics, groups, clients, offsets, and the files that hold it."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from congreve.broker.admin.stats import BrokerStats
from congreve.broker.config import BrokerConfig
from congreve.broker.delay.service import DelayedMessages
from congreve.broker.group.broker_to_client import notify_consumer_ids_changed
from congreve.broker.group.clients import CHANNEL_EXPIRED_S
from congreve.broker.group.consumers import ConsumerManager
from congreve.broker.group.locks import RebalanceLockManager
from congreve.broker.group.notifier import GroupNotifier
from congreve.broker.group.producers import ProducerManager
from congreve.broker.metadata.deleted_topics import DeletedTopics
from congreve.broker.metadata.filters import ConsumerFilterManager
from congreve.broker.metadata.groups import SubscriptionGroupManager
from congreve.broker.metadata.offset_file import OffsetFile
from congreve.broker.metadata.offsets import ConsumerOffsetManager
from congreve.broker.metadata.saved_state import SavedState
from congreve.broker.metadata.state_writer import Changes
from congreve.broker.metadata.topics import TopicConfigManager
from congreve.broker.transaction.transactions import Transactions
from congreve.engine.clock import Clock
from congreve.engine.state.state_file import StateFile
from congreve.engine.store import MessageStore
from congreve.records.message.topics import NEVER_UNUSED
from congreve.remoting.messages.bodies import TopicConfig
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.pieces import Pieces
from congreve.steps import at_once

logger = logging.getLogger(__name__)

NAMES_TOLD = 20

Steps = Generator[None, None, None]


class Managers:
    """All managers of one broker (RocketMQ: the fields of BrokerController)."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        clock: Clock,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pieces = Pieces()
        self.topics = TopicConfigManager(config, clock)
        self.groups = SubscriptionGroupManager(config, clock)
        self.offsets = ConsumerOffsetManager(config)
        self.filters = ConsumerFilterManager(config, clock, self.pieces)
        self.consumers = ConsumerManager(
            config, self._group_changed, self.filters.unregister, monotonic
        )
        self._notifier = GroupNotifier(self.pieces, self.consumers.groups.get)
        self._closed: deque[tuple[Connection, tuple[Steps, ...]]] = deque()
        self._forgetting: asyncio.Task[None] | None = None
        self.producers = ProducerManager(config, clock, monotonic)
        self.locks = RebalanceLockManager(
            config.rebalance_lock_max_live_time, self._queues_freed, monotonic
        )
        self.stats = BrokerStats(clock, lambda: store.queues, monotonic)
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
        self._store = store
        self._loaded = False
        folder = Path(config.store.config_dir)
        self._topics_store = StateFile(str(folder / "topics.json"))
        self._groups_store = StateFile(str(folder / "subscriptionGroup.json"))
        self._filters_store = StateFile(str(folder / "consumerFilter.json"))
        self._offset_file = OffsetFile(
            str(folder / "consumerOffset.json"),
            str(Path(config.store.own_dir) / "consumerOffset.journal"),
            self.offsets,
        )
        self.topics_file = Changes(
            self._topics_store.path,
            lambda: self.topics.data_version,
            lambda version: self._topics_store.replace(self.topics.file_text(version)),
            self.topics.note_saved,
        )
        self.groups_file = Changes(
            self._groups_store.path,
            lambda: self.groups.data_version,
            lambda version: self._groups_store.replace(self.groups.file_text(version)),
            self.groups.note_saved,
        )
        self._filters_file = Changes(
            self._filters_store.path,
            self.filters.drop_long_dead,
            lambda _: self._filters_store.replace(self.filters.file_text()),
        )
        self._offsets_file = Changes(
            self._offset_file.path, lambda: None, lambda _: self._offset_file.replace()
        )
        self.acknowledged_offsets = Changes(
            self._offset_file.journal_path,
            self.offsets.take_acknowledged,
            self._offset_file.append,
        )
        self.deleted_topics = DeletedTopics(config.store.own_dir)
        self._files: tuple[Changes[Any], ...] = (
            self.topics_file,
            self.groups_file,
            self._filters_file,
            self._offsets_file,
            self.acknowledged_offsets,
            self.deleted_topics.file,
        )
        self.topics.changed = self.topics_file.changed
        self.groups.changed = self.groups_file.changed
        self.filters.changed = self._filters_file.changed
        self.topics.listen(self._topic_changed, when_saved=True)
        self.saved = SavedState(
            self.topics, self.groups, self.topics_file.saved, self.groups_file.saved
        )

    async def load(self) -> None:
        """Read all files; the store is open. Raises StoreError when a file cannot be used."""
        had_topics = self._topics_store.load(self.topics.load)
        self._groups_store.load(self.groups.load)
        self._filters_store.load(self.filters.load)
        self._offset_file.load()
        self.deleted_topics.load()
        if had_topics is not None:
            self._end_deletions()
        log = self._store.log
        self.deleted_topics.forget(log.min_offset, log.max_offset)
        self._drop_messages_of_deleted_topics()
        self._restore_topics(had_topics is not None)
        await asyncio.to_thread(self.delayed.load)
        await asyncio.to_thread(self.transactions.load)
        self._loaded = True

    def _topic_changed(self, topic: str, config: TopicConfig | None) -> None:
        # Only when topics.json has it: otherwise a kill would bring back the deleted topic.
        if config is not None and self.topics.is_saved(topic):
            self.deleted_topics.made(topic)

    def _end_deletions(self) -> None:
        """Finish deletions that a kill interrupted; recovery may have found their messages."""
        log_end = self._store.log.max_offset
        for topic, end in self.deleted_topics.gone().items():
            if topic in self.topics.table:
                self.deleted_topics.made(topic)
                continue
            at_once(self.offsets.remove_topic_steps(topic))
            found = topic in self._store.queues
            if found:
                self._store.delete_topic(topic)
            if found or not 0 <= end <= log_end:
                self.deleted_topics.end([topic], log_end)

    def _drop_messages_of_deleted_topics(self) -> None:
        """Cut messages of a deleted topic from queues that were rebuilt from the log."""
        dropped = [
            topic
            for topic, log_end in self.deleted_topics.ends().items()
            if self._store.drop_queues_before(topic, log_end)
        ]
        if dropped:
            self._store.checkpoint()
            logger.warning(
                "queues of %d topics had only messages of deleted topics of these names: %s",
                *(len(dropped), _told(dropped)),
            )

    def _restore_topics(self, had_topics: bool) -> None:
        """Create the topics again that have messages in the log but are in no file."""
        queues = {
            topic: max(queue.queue_id for queue in found) + 1
            for topic in self._store.queues.topics()
            if (found := [q for q in self._store.queues.queues_of(topic) if q.max > 0])
        }
        lost = {topic: count for topic, count in queues.items() if topic not in NEVER_UNUSED}
        if not had_topics and lost:
            logger.error(
                "%s is missing beside a store with messages of %d topics: their settings are lost",
                *(self._topics_store.path, len(lost)),
            )
        restored = self.topics.restore(
            {topic: count for topic, count in lost.items() if topic not in self.deleted_topics}
        )
        if restored:
            logger.warning(
                "%d topics with messages were in no file and are made anew: %s",
                *(len(restored), _told(restored)),
            )

    async def start(self) -> None:
        """Start delayed delivery and transaction checks; a slave does neither."""
        if not self._config.is_slave:
            await self.delayed.start()
        self.transactions.start()

    async def stop(self) -> None:
        """Save all state; it is on disk when this returns, and the store is still open. Idempotent.

        Nothing is written when loading failed: the files hold more than memory.
        """
        self._notifier.stop()
        if self._forgetting is not None:
            await asyncio.wait([self._forgetting])
        if not self._loaded:
            return
        await self.delayed.stop()
        await self.transactions.stop()
        self.save_offsets()
        for file in self._files:
            await file.settled()
        self._offset_file.close()

    def trouble(self) -> str | None:
        """Which files cannot be written, and why; None when all changes are or will be on disk."""
        files = (*self._files, *self.delayed.files, *self.transactions.files)
        return "; ".join(file.trouble for file in files if file.trouble is not None) or None

    def save_offsets(self) -> None:
        """Write the offsets of groups and transactions soon."""
        self.transactions.save()
        if self.offsets.dirty:
            self.offsets.dirty = False
            self._offsets_file.changed()

    def _group_changed(self, group: str) -> None:
        if self._config.notify_consumer_ids_changed_enable:
            self._notifier.changed(group)

    def _queues_freed(self, group: str, clients: set[str]) -> None:
        online, settings = self.consumers.groups.get(group), self.groups.table.get(group)
        told = settings is None or settings.notify_consumer_ids_changed_enable
        if online is not None and told and self._config.notify_consumer_ids_changed_enable:
            for connection, client in online.channels.items():
                if client.client_id in clients:
                    notify_consumer_ids_changed(group, connection)

    def connection_closed(self, connection: Connection, *closing: Steps) -> None:
        """Forget the clients of this connection; `closing` is what else has to end with it.

        Thousands may end in one turn of the event loop: one task works for all of them.
        """
        self._closed.append((connection, closing))
        if self._forgetting is None or self._forgetting.done():
            work = self.pieces.run(self._forgetting_steps())
            self._forgetting = asyncio.get_running_loop().create_task(work)

    def _forgetting_steps(self) -> Steps:
        while self._closed:
            connection, closing = self._closed.popleft()
            members = self.consumers.closing_steps(connection)
            producers = self.producers.closing_steps(connection)
            for steps in (members, producers, *closing):
                try:
                    yield from steps
                except Exception:
                    logger.exception("a closed connection from %s:%d left state", *connection.peer)
            yield

    async def close_silent(self) -> None:
        """Close connections whose client has sent no heartbeat for too long."""
        silent = await self.pieces.run(self.consumers.expired_steps(CHANNEL_EXPIRED_S))
        silent |= await self.pieces.run(self.producers.expired_steps(CHANNEL_EXPIRED_S))
        for connection in silent:
            logger.warning(
                "no heartbeat from %s:%d for %d s, closed", *connection.peer, CHANNEL_EXPIRED_S
            )
            connection.close()


def _told(names: list[str]) -> str:
    return ", ".join(sorted(names)[:NAMES_TOLD]) + (", ..." if len(names) > NAMES_TOLD else "")
