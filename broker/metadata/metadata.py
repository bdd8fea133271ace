"""The tables of a broker in state files (RocketMQ: the ConfigManagers of BrokerController)."""

import asyncio
from collections.abc import Awaitable

from congreve.base.clock import Clock
from congreve.broker.config import BrokerConfig
from congreve.broker.metadata.deleted_topics import DeletedTopics
from congreve.broker.metadata.filters import ConsumerFilterManager
from congreve.broker.metadata.former_readers import FormerReaders
from congreve.broker.metadata.groups import SubscriptionGroupManager
from congreve.broker.metadata.offsets import ConsumerOffsetManager
from congreve.broker.metadata.request_modes import MessageRequestModes
from congreve.broker.metadata.topics import TopicConfigManager
from congreve.engine.state.state_file import DISK, FileSystem
from congreve.remoting.loop.pieces import Pieces


class Metadata:
    """The tables of one broker; `StateFiles` connects them with their files."""

    def __init__(
        self, config: BrokerConfig, clock: Clock, pieces: Pieces, files: FileSystem = DISK
    ) -> None:
        self.topics = TopicConfigManager(config, clock)
        self.groups = SubscriptionGroupManager(config, clock)
        self.offsets = ConsumerOffsetManager(config)
        self.filters = ConsumerFilterManager(config, clock, pieces)
        self.request_modes = MessageRequestModes(config)
        self.deleted_topics = DeletedTopics(config.store.own_dir, files)
        self.former_readers = FormerReaders(self.deleted_topics, self.offsets)

    def missing(
        self, *, topics: tuple[str, ...] = (), group: str | None = None
    ) -> Awaitable[object] | None:
        """None when these topics and this group are on disk, else an awaitable until they are.

        It raises StoreError when they cannot be written. An answer that depends on them waits.
        """
        topic_missing = not all(map(self.topics.is_saved, topics))
        group_missing = group is not None and not self.groups.is_saved(group)
        if topic_missing and group_missing:
            return asyncio.gather(self.topics.file.saved(), self.groups.file.saved())
        if topic_missing:
            return self.topics.file.saved()
        return self.groups.file.saved() if group_missing else None
