"""The paths of messages through an open store, compiled and in Python."""

from collections.abc import Callable

from congreve.broker.fastpath.fastpath import FastPath
from congreve.broker.fastpath.settings import fast_path_settings, follow_topics
from congreve.broker.fastpath.topic_table import TopicTable
from congreve.broker.managers import Managers
from congreve.broker.pull.processor import PullMessageProcessor
from congreve.broker.send.group_commit import GroupCommit
from congreve.engine.queue.consume_queue import ConsumeQueue


class MessagePaths:
    """Group commit, pulls and the fast path of one broker; its store is open.

    It calls `arrived` with each queue that got an entry.
    """

    def __init__(self, managers: Managers, arrived: Callable[[ConsumeQueue], None]) -> None:
        config, store = managers.config, managers.store
        self.group_commit = GroupCommit(store.backend, config.store)
        self.pulls = PullMessageProcessor(
            config=config,
            metadata=managers.metadata,
            consumers=managers.members.consumers,
            store=store,
            stats=managers.stats,
            clock=managers.clock,
        )
        topics = TopicTable()
        follow_topics(managers.metadata.topics, topics)
        self.fast_path = FastPath(
            store=store,
            topics=topics,
            group_commit=self.group_commit,
            arrived=arrived,
            pulls=self.pulls.path,
            transactions=managers.transactions.fast_path(topics),
            delays=managers.delayed.fast_path(config.broker_cluster_name),
            settings=fast_path_settings(config),
        )
        self.group_commit.start()

    def waiting(self) -> tuple[int, int]:
        """Answers that wait for the disk, and pulls that wait for messages."""
        return len(self.group_commit), len(self.pulls.long_polling)
