"""Offsets of consumer groups (RocketMQ: ConsumerOffsetManager)."""

import logging
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from typing import Any

from congreve.base.limited_log import LimitedLog
from congreve.base.steps import freed
from congreve.base.table_limit import TableFullError, TableLimit
from congreve.broker.config import BrokerConfig
from congreve.broker.metadata.name_rules import QUEUES_MAX
from congreve.broker.metadata.state_writer import MemoryOnly, TableFile
from congreve.broker.metadata.table_text import (
    EntryTexts,
    TableBody,
    check_entry,
    entry_text,
    file_text,
)
from congreve.records.message.topics import TRANS_GROUP
from congreve.remoting.messages import fastjson
from congreve.remoting.messages.bodies import ConsumerOffsetSerializeWrapper

logger = logging.getLogger(__name__)

NO_OFFSET = -1
_SEPARATOR = "@"
OFFSET_MAX = 2**63 - 1
OFFSET_BYTES = 64
"""A queue's offset in memory."""
KEY_BYTES = 700
"""The tables of a topic and group in memory, without names."""

Acknowledged = dict[str, set[int] | None]
"""Queues of `topic@group` whose offsets were acknowledged, None for all of them."""
Line = tuple[str, dict[int, int] | None]
"""Offsets of queues of `topic@group`; None: its offsets were removed."""

Table = Mapping[str, Mapping[int, int]]

Commit = tuple[str, str, int, int]
"""Group, topic, queue id and the offset that was committed there."""

Place = tuple[str, str, int]
"""Group, topic and queue id."""
Refused = Callable[[Place, int, int], bool]
"""Whether to ignore a commit at a place: its offset, the present offset."""
Noted = Callable[[Place, int], None]
"""Gets a place and its new offset."""


def _memory_of(key: str, queues: int, *, is_new: bool) -> int:
    """What some queues of a key take in the table, its indexes and the text of its file, about."""
    return OFFSET_BYTES * queues + is_new * (KEY_BYTES + 4 * len(key))


class ConsumerOffsetManager:
    """`topic@group` -> queue id -> offset of the next message to consume; the last write wins.

    `journal` writes the acknowledged offsets. (RocketMQ: ConsumerOffsetManager.)
    """

    def __init__(self, config: BrokerConfig) -> None:
        self.table: dict[str, dict[int, int]] = {}
        self._topics: dict[str, dict[str, None]] = {}  # of each group, in order
        self._groups: dict[str, dict[str, None]] = {}  # of each topic
        self._steps_back = LimitedLog(logger)
        self._count = 0  # of all queues
        self._limit = TableLimit(
            "maxConsumerOffsets", "offsets of consumers", lambda: config.limits.max_consumer_offsets
        )
        self._bytes = 0  # of all keys and queues, about
        self._bytes_limit = TableLimit(
            "maxConsumerOffsetBytes",
            "bytes of consumers' offsets",
            lambda: config.limits.max_consumer_offset_bytes,
        )
        self._refused: list[Refused] = []
        self._highest: Callable[[str, int], int] = lambda topic, queue_id: OFFSET_MAX
        self._sources: list[Callable[[], Iterable[Commit]]] = []
        self._listeners: list[Noted] = []
        self._changes = 0
        self._dirty = False
        self._texts = EntryTexts(self._entry_text)
        self._acknowledged: Acknowledged = {}
        self.journal: TableFile = MemoryOnly()

    def refuse(self, refused: Refused) -> None:
        """Ignore the commits of clients for which `refused` is true."""
        self._refused.append(refused)

    def limit(self, highest: Callable[[str, int], int]) -> None:
        """Take a higher offset of a client as `highest` of its topic and queue id."""
        self._highest = highest

    def follow(self, source: Callable[[], Iterable[Commit]]) -> None:
        """Collect another thread's commits before each use; `source` returns those since its last
        call."""
        self._sources.append(source)

    def listen(self, noted: Noted) -> None:
        """Call `noted` with the place and the number of each offset that changes."""
        self._listeners.append(noted)

    @property
    def changes(self) -> int:
        """The number of changes so far; as long as it is the same, so is the result of body()."""
        self._collect()
        return self._changes

    @property
    def dirty(self) -> bool:
        """Whether there were changes; the code that saves the table clears it."""
        self._collect()
        return self._dirty

    @dirty.setter
    def dirty(self, value: bool) -> None:
        self._dirty = value

    def check(self, group: str, topic: str, queue_ids: Collection[int]) -> None:
        """Check names and limits before a commit.

        Raises RefusedError when consumerOffset.json cannot hold these names, TableFullError when
        these queues exceed maxConsumerOffsets or maxConsumerOffsetBytes.
        """
        key = topic + _SEPARATOR + group
        if key not in self.table:
            check_entry(key, {0: 0}, _offsets_of)
        known = self.table.get(key, {})
        new = sum(queue_id not in known for queue_id in queue_ids)
        self._limit.check(self._count, new)
        self._bytes_limit.check(self._bytes, _memory_of(key, new, is_new=not known))

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Take a client's offset; a negative one is ignored.

        It is also ignored for the broker's own group, which no client may change, and when it is
        new and the table is full.
        """
        self._collect()
        self._commit(group, topic, queue_id, offset)

    def _collect(self) -> None:
        for source in self._sources:
            for commit in source():
                self._commit(*commit)

    def _commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        if offset < 0 or group == TRANS_GROUP:
            return
        offset = min(offset, self._highest(topic, queue_id))
        known = self.table.get(topic + _SEPARATOR + group, {}).get(queue_id, NO_OFFSET)
        place = group, topic, queue_id
        if not any(refused(place, offset, known) for refused in self._refused):
            self.note(group, topic, queue_id, offset)

    def note(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """commit() for every group, including the broker's own."""
        key = topic + _SEPARATOR + group
        queues = self.table.get(key, {})
        before = queues.get(queue_id, NO_OFFSET)
        if offset == before:
            return
        if before == NO_OFFSET:
            if group != TRANS_GROUP and not self._has_room(key):
                return
            if not queues:
                self._add(topic, group, queues)
            self._count += 1
            self._bytes += OFFSET_BYTES
        if offset < before:
            self._steps_back.warning(
                "offset of group %s on %s queue %d moves back from %d to %d",
                group,
                topic,
                queue_id,
                before,
                offset,
            )
        queues[queue_id] = offset
        self._changed(key)
        for noted in self._listeners:
            noted((group, topic, queue_id), offset)

    def follow_master(self, theirs: Table, before: Table | None) -> None:
        """Take what changed in a master's table since `before`; None: what is ahead of this one.

        RocketMQ: SlaveSynchronize.syncConsumerOffset.
        """
        known = {} if before is None else before
        for key, queues in theirs.items():
            topic, separator, group = key.partition(_SEPARATOR)
            old = known.get(key, {})
            if not separator or queues == old:
                continue
            mine = self.table.get(key, {})
            for queue_id, offset in _possible(key, queues).items():
                ahead = offset > mine.get(queue_id, NO_OFFSET)
                if ahead or (before is not None and offset != old.get(queue_id)):
                    self.note(group, topic, queue_id, offset)
        for key in [key for key in known if key not in theirs and key in self.table]:
            topic, _, group = key.partition(_SEPARATOR)
            self._remove(topic, group)

    def acknowledge(self, group: str, topic: str, queue_id: int) -> None:
        """Mark an offset that must be on disk before its commit is answered."""
        queues = self._acknowledged.setdefault(topic + _SEPARATOR + group, set())
        if queues is not None:
            queues.add(queue_id)

    def take_acknowledged(self) -> Acknowledged:
        """The offsets that were acknowledged or removed since the last call."""
        self._collect()
        taken, self._acknowledged = self._acknowledged, {}
        return taken

    def lines(self, taken: Acknowledged) -> list[Line]:
        """The journal lines that keep these offsets; they are read after consumerOffset.json.

        Any one thread may call it: the interpreter copies a queue's numbers in one step.
        """
        lines: list[Line] = []
        for key, queues in taken.items():
            offsets = dict(self.table.get(key, {}))
            if queues is None:
                lines.append((key, None))
            else:
                offsets = {q: offsets[q] for q in queues if q in offsets}
            if offsets:
                lines.append((key, offsets))
        return lines

    def replay(self, lines: list[Line]) -> None:
        """Apply the lines of the journal, after load()."""
        for key, offsets in lines:
            topic, separator, group = key.partition(_SEPARATOR)
            if offsets is None and key in self.table:
                self._remove(topic, group)
            elif offsets is not None and separator:
                queues = self.table.get(key, {}) | _possible(key, offsets)
                self._add(topic, group, queues)
                self._changed(key)

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """The committed offset, NO_OFFSET when there is none."""
        self._collect()
        queues = self.table.get(topic + _SEPARATOR + group)
        return NO_OFFSET if queues is None else queues.get(queue_id, NO_OFFSET)

    def queues(self, group: str, topic: str) -> dict[int, int]:
        """A copy of the offsets by queue id; empty when nothing was committed."""
        self._collect()
        return dict(self.table.get(topic + _SEPARATOR + group, {}))

    def topics(self) -> list[str]:
        """Topics on which any group has offsets."""
        self._collect()
        return list(self._groups)

    def groups(self) -> list[str]:
        """Groups with offsets on any topic."""
        self._collect()
        return list(self._topics)

    def topics_of(self, group: str) -> list[str]:
        """Topics on which `group` has offsets (whichTopicByConsumer)."""
        self._collect()
        return list(self._topics.get(group, ()))

    def of_group(self, group: str) -> dict[str, dict[int, int]]:
        """The offsets of `group` by topic and queue id; callers must not edit them."""
        self._collect()
        topics = self._topics.get(group, ())
        return {topic: self.table[topic + _SEPARATOR + group] for topic in topics}

    def groups_of(self, topic: str) -> list[str]:
        """Groups with offsets on `topic` (whichGroupByTopic)."""
        self._collect()
        return list(self._groups.get(topic, ()))

    def clone(self, source: str, target: str, topic: str) -> None:
        """Copy the offsets that `source` has on `topic` to `target`."""
        self._collect()
        queues = self.table.get(topic + _SEPARATOR + source)
        if queues is not None and target != TRANS_GROUP:
            self._add(topic, target, dict(queues))
            key = topic + _SEPARATOR + target
            self._acknowledged[key] = None
            self._changed(key)

    def remove_group(self, group: str) -> None:
        """Remove a group's offsets, except those of the broker's own group."""
        if group == TRANS_GROUP:
            return
        for topic in self.topics_of(group):
            self._remove(topic, group)

    def remove_topic_steps(self, topic: str) -> Generator[None, None, None]:
        """Remove the offsets of a deleted topic: its queues begin at 0 if it is created again."""
        for group in self.groups_of(topic):
            if topic + _SEPARATOR + group in self.table:  # groups may be removed meanwhile
                yield from freed(self._remove(topic, group))

    def file_text(self) -> str:
        """Content of consumerOffset.json; one thread at a time may call it."""
        entries = list(self._texts.current().values())
        return file_text(ConsumerOffsetSerializeWrapper(), "offsetTable", entries)

    def body(self) -> TableBody[str, dict[int, int]]:
        """The body of code 43, of which only changed offsets are encoded again; the offsets of a
        group on a topic are a snapshot."""
        return TableBody(self.table, ConsumerOffsetSerializeWrapper, "offsetTable", copied=dict)

    def load(self, text: str) -> bool:
        """Load the content of consumerOffset.json; returns True."""
        stored = ConsumerOffsetSerializeWrapper.from_tree(fastjson.loads(text))
        self.table.clear()
        self._count = self._bytes = 0
        self._topics.clear()
        self._groups.clear()
        for key, queues in stored.offset_table.items():
            topic, separator, group = key.partition(_SEPARATOR)
            if separator:
                self._add(topic, group, _possible(key, queues))
                self._texts.changed(key)
        return True

    def _has_room(self, key: str) -> bool:
        new_bytes = _memory_of(key, 1, is_new=key not in self.table)
        try:
            self._limit.check(self._count)
            self._bytes_limit.check(self._bytes, new_bytes)
        except TableFullError:
            return False
        return True

    def _changed(self, key: str) -> None:
        self._changes += 1
        self._dirty = True
        self._texts.changed(key)

    def _entry_text(self, key: str) -> str | None:
        queues = self.table.get(key)
        return None if queues is None else entry_text(key, dict(queues), depth=2)

    def _add(self, topic: str, group: str, queues: dict[int, int]) -> dict[int, int]:
        key = topic + _SEPARATOR + group
        before = self.table.get(key)
        self._count += len(queues) - len(before or ())
        self._bytes += _memory_of(key, len(queues), is_new=before is None)
        self._bytes -= OFFSET_BYTES * len(before or ())
        self.table[key] = queues
        self._topics.setdefault(group, {})[topic] = None
        self._groups.setdefault(topic, {})[group] = None
        return queues

    def _remove(self, topic: str, group: str) -> dict[int, int]:
        """Remove a group's offsets on a topic, and return them."""
        key = topic + _SEPARATOR + group
        removed = self.table.pop(key)
        self._count -= len(removed)
        self._bytes -= _memory_of(key, len(removed), is_new=True)
        self._acknowledged[key] = None
        self._changed(key)
        for table, name, other in (
            (self._topics, group, topic),
            (self._groups, topic, group),
        ):
            del table[name][other]
            if not table[name]:
                del table[name]
        return removed


def _offsets_of(tree: Any) -> dict[str, dict[int, int]]:
    return ConsumerOffsetSerializeWrapper.from_tree({"offsetTable": tree}).offset_table


def _possible(key: str, queues: Mapping[int, int]) -> dict[int, int]:
    """Only the valid queues and offsets: a bit may have flipped in the file."""
    possible = {
        queue_id: offset
        for queue_id, offset in queues.items()
        if 0 <= queue_id < QUEUES_MAX and 0 <= offset <= OFFSET_MAX
    }
    if len(possible) < len(queues):
        logger.error("ignoring %d invalid offsets of %.200r", len(queues) - len(possible), key)
    return possible
