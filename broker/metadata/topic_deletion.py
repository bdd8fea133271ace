"""Removal of the queues of deleted topics (RocketMQ: DefaultMessageStore.destroyLogicQueue)."""

import asyncio
from collections.abc import Callable, Collection, Iterable

from congreve.base.errors import CongreveError
from congreve.broker.metadata.deleted_topics import DeletedTopics
from congreve.broker.metadata.state_writer import Changes
from congreve.broker.metadata.topics import TopicConfigManager
from congreve.engine.errors import StoreError
from congreve.engine.store import MessageStore


class TopicDeletion:
    """Removes queues so that a kill at any moment does not bring them back.

    Without a checkpoint the next start would find the queues on disk. If the checkpoint cannot be
    written, the write is repeated, and until it succeeds the topic cannot be created again: a
    start would mix the messages of both topics. One event loop owns this object.
    """

    def __init__(
        self,
        topics: TopicConfigManager,
        deleted: DeletedTopics,
        store: MessageStore,
        readers_of: Callable[[str], Collection[str]],
    ) -> None:
        """`readers_of` are the groups that read a topic now, and share its queues."""
        self._readers_of = readers_of
        self._topics = topics
        self._deleted = deleted
        self._store = store
        self._log_ends: dict[str, int] = {}  # of topics that wait for a checkpoint
        self._covered: dict[str, int] = {}  # those of them that are in the newest checkpoint
        self.checkpoints: Changes[None] = Changes(
            "a checkpoint of deleted topics", self._take, self._checkpoint, self._written
        )
        """The checkpoints that are due."""

    async def begin(self, topics: Collection[str]) -> None:
        """Record on disk that these topics are being deleted. Raises StoreError if that fails."""
        await self._deleted.begin(topics, {topic: self._readers_of(topic) for topic in topics})

    async def finish(self, topics: Iterable[str]) -> None:
        """Remove the topics' queues, and record on disk that begin()'s deletions are done.

        Raises StoreError when a write fails; it is repeated later.
        """
        for topic in topics:
            while not self._store.try_remove_topic(topic):
                await asyncio.to_thread(self._store.wait_for_files)
            self._log_ends[topic] = self._store.log.max_offset
            self._topics.forbid_creation(topic)
            await asyncio.sleep(0)
        await self.checkpoints.write()
        self._end_covered()
        await self._deleted.file.saved()

    def _take(self) -> None:
        self._covered = dict(self._log_ends)

    def _checkpoint(self, _: None) -> None:
        try:
            self._store.checkpoint()
        except StoreError:
            raise
        except CongreveError as error:
            raise StoreError(str(error)) from error

    def _written(self, number: int) -> None:
        self._end_covered()

    def _end_covered(self) -> None:
        covered, self._covered = self._covered, {}
        for topic, log_end in covered.items():
            if self._log_ends.get(topic) != log_end:
                continue
            del self._log_ends[topic]
            self._topics.allow_creation(topic)
            if topic in self._deleted and self._store.backend.durable_offset >= log_end:
                self._deleted.end([topic], log_end)
