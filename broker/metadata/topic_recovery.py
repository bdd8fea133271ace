"""Recovery of topics after a stop or a kill."""

import logging

from congreve.base.steps import at_once
from congreve.broker.metadata.metadata import Metadata
from congreve.engine.store import MessageStore
from congreve.records.message.topics import NEVER_UNUSED
from congreve.remoting.messages.bodies import TopicConfig

logger = logging.getLogger(__name__)

NAMES_LOGGED = 20


class TopicRecovery:
    """Finishes deletions, and recreates missing topics with messages in the log."""

    def __init__(self, metadata: Metadata, store: MessageStore, topics_path: str) -> None:
        self._topics = metadata.topics
        self._offsets = metadata.offsets
        self._deleted = metadata.deleted_topics
        self._store = store
        self._topics_path = topics_path
        self._topics.listen(self._topic_changed, when_saved=True)

    def run(self, had_topics: bool, *, follows: bool) -> None:
        """Recover. The store must be open and the files read; `had_topics`: topics.json exists.

        With `follows`, a master sends what is behind the ends of the queues.
        """
        if had_topics:
            self._end_deletions()
        log = self._store.log
        self._deleted.forget(log.min_offset, log.max_offset)
        self._drop_messages_of_deleted_topics()
        self._restore_topics(had_topics)
        if self._store.changes and not follows:
            self._lower_offsets()

    def _topic_changed(self, topic: str, config: TopicConfig | None) -> None:
        # Only when topics.json has it: otherwise a kill would bring back the deleted topic.
        if config is None or not self._topics.is_saved(topic):
            return
        if not self._topics.is_being_deleted(topic):
            self._deleted.note_created(topic)

    def _end_deletions(self) -> None:
        """Finish deletions that a kill interrupted; recovery may have found their messages."""
        log_end = self._store.log.max_offset
        for topic, end in self._deleted.deleted().items():
            if topic in self._topics.table:
                self._deleted.note_created(topic)
                continue
            at_once(self._offsets.remove_topic_steps(topic))
            found = topic in self._store.queues
            if found:
                self._store.delete_topic(topic)
            if found or not 0 <= end <= log_end:
                self._deleted.end([topic], log_end)

    def _drop_messages_of_deleted_topics(self) -> None:
        """Remove messages of a deleted topic from queues that were rebuilt from the log."""
        dropped = [
            topic
            for topic, log_end in self._deleted.ends().items()
            if self._store.drop_queues_before(topic, log_end)
        ]
        if dropped:
            self._store.checkpoint()
            logger.warning(
                "queues of %d topics had only messages of deleted topics of these names: %s",
                len(dropped),
                _some(dropped),
            )

    def _restore_topics(self, had_topics: bool) -> None:
        """Recreate topics that have messages in the log but are in no file."""
        queues = {
            topic: max(queue.queue_id for queue in found) + 1
            for topic in self._store.queues.topics()
            if (found := [q for q in self._store.queues.queues_of(topic) if q.max > 0])
        }
        lost = {topic: count for topic, count in queues.items() if topic not in NEVER_UNUSED}
        if not had_topics and lost:
            logger.error(
                "%s is missing, but the store has messages of %d topics: their settings are lost",
                self._topics_path,
                len(lost),
            )
        restored = self._topics.restore(
            {topic: count for topic, count in lost.items() if topic not in self._deleted}
        )
        if restored:
            logger.warning(
                "%d topics with messages were in no file and are created again: %s",
                len(restored),
                _some(restored),
            )

    def _lower_offsets(self) -> None:
        """Lower offsets beyond the ends of their queues to there: they are of another moment.

        Their groups would skip the messages in between, once the queues have more. Clients may
        commit such offsets, too, which stay as long as nothing was replaced.
        """
        lowered = []
        for queue in self._store.queues:
            for group in self._offsets.groups_of(queue.topic):
                offset = self._offsets.query(group, queue.topic, queue.queue_id)
                if offset > queue.max:
                    self._offsets.note(group, queue.topic, queue.queue_id, queue.max)
                    lowered.append(f"{group} on {queue.topic} queue {queue.queue_id}")
        if lowered:
            logger.warning(
                "%d offsets of consumerOffset.json were beyond the end of their queues, and are"
                " there now: %s",
                len(lowered),
                _some(lowered),
            )


def _some(names: list[str]) -> str:
    return ", ".join(sorted(names)[:NAMES_LOGGED]) + (", ..." if len(names) > NAMES_LOGGED else "")
