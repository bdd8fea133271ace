"""Topics that an administrator deleted while their messages are still in the log.

Recovery recreates a topic when it finds messages of it, but not a deleted topic. A topic that was
created again after its deletion does not have the messages of the earlier topic.
"""

import os
from collections.abc import Collection, Iterable, Mapping

import msgspec

from congreve.broker.metadata.state_writer import Changes
from congreve.engine.errors import StoreError
from congreve.engine.state.sealed import seal, unseal
from congreve.engine.state.state_file import DISK, FileSystem, StateFile

UNDER_WAY = -1
"""The value in place of the log's end while a deletion is running."""


class DeletedTopicTable(msgspec.Struct, rename="camel"):
    """Content of deletedTopics.json: topic -> the log's end when it was deleted, and the groups
    that were reading it then.

    It has a checksum, because a flipped bit in an end could hide messages of a recreated topic.
    """

    topics: dict[str, int] = {}
    made_again: dict[str, int] = {}
    readers: dict[str, list[str]] = {}


class DeletedTopics:
    """The deleted topics, in a state file of their own (RocketMQ has none)."""

    def __init__(self, own_dir: str, files: FileSystem = DISK) -> None:
        self._ends: dict[str, int] = {}
        self._made_again: dict[str, int] = {}
        self._readers: dict[str, list[str]] = {}
        self._store = StateFile(os.path.join(own_dir, "deletedTopics.json"), files=files)
        self.file = Changes(self._store.path, self._table, self._write)

    def __contains__(self, topic: str) -> bool:
        return topic in self._ends

    def load(self) -> None:
        """Read deletedTopics.json. Raises StoreError when it cannot be used."""
        self._store.load(self._parse)

    async def begin(self, topics: Iterable[str], readers: Mapping[str, Iterable[str]]) -> None:
        """Record deletions on disk: after a kill, the next start finishes them.

        `readers` are the groups that read these topics now. Raises StoreError if the file cannot be
        written; no deletion is recorded then.
        """
        for topic in topics:
            self._ends[topic] = UNDER_WAY
            groups = {*self._readers.get(topic, ()), *readers.get(topic, ())}
            if groups:
                self._readers[topic] = sorted(groups)
        self.file.changed()
        try:
            await self.file.saved()
        except StoreError:
            for topic in topics:
                self.note_created(topic)
            raise

    def end(self, topics: Iterable[str], log_end: int) -> None:
        """Record that the topics were deleted when the log ended at `log_end`.

        The log must be durable up to there: after the loss of its tail the messages of a new
        topic would have smaller offsets.
        """
        for topic in topics:
            ends = self._ends if topic in self._ends else self._made_again
            ends[topic] = log_end
        self.file.changed()

    def note_created(self, topic: str) -> None:
        """Record that the topic was created again, or that its deletion did not start."""
        log_end = self._ends.pop(topic, None)
        if log_end is None:
            return
        if log_end != UNDER_WAY:
            self._made_again[topic] = log_end
        self.file.changed()

    def deleted(self) -> dict[str, int]:
        """The topics that are deleted now, with the log's end at their deletion or UNDER_WAY."""
        return dict(self._ends)

    def ends(self) -> dict[str, int]:
        """All topics that were ever deleted: earlier records are those of the deleted topic."""
        known = {**self._made_again, **self._ends}
        return {topic: log_end for topic, log_end in known.items() if log_end != UNDER_WAY}

    def was_deleted(self, topic: str) -> bool:
        """Whether a topic was deleted, and perhaps made again."""
        return topic in self._ends or topic in self._made_again

    def readers(self, topic: str) -> Collection[str]:
        """The groups that were reading a topic when it was deleted."""
        return self._readers.get(topic, ())

    def forget(self, log_begin: int, log_end: int) -> None:
        """Drop the topics without records in the log, and those of another log."""
        for ends in (self._ends, self._made_again):
            for topic, end in list(ends.items()):
                if end != UNDER_WAY and not log_begin < end <= log_end:
                    del ends[topic]
                    self.file.changed()
        for topic in self._readers.keys() - self._ends.keys() - self._made_again.keys():
            del self._readers[topic]

    def _parse(self, text: str) -> bool:
        table = msgspec.json.decode(unseal(text), type=DeletedTopicTable)
        self._ends.update(table.topics)
        self._made_again.update(table.made_again)
        self._readers.update(table.readers)
        return True

    def _table(self) -> DeletedTopicTable:
        return DeletedTopicTable(dict(self._ends), dict(self._made_again), dict(self._readers))

    def _write(self, table: DeletedTopicTable) -> None:
        self._store.replace(seal(msgspec.json.encode(table)))
