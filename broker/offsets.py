"""How far each group has come (RocketMQ: ConsumerOffsetManager)."""

import logging

from congreve.remoting import fastjson
from congreve.remoting.bodies import ConsumerOffsetSerializeWrapper

logger = logging.getLogger(__name__)

NO_OFFSET = -1
_SEPARATOR = "@"


class ConsumerOffsetManager:
    """`topic@group` -> queue id -> offset of the next message to consume. The last write wins."""

    def __init__(self) -> None:
        self.table: dict[str, dict[int, int]] = {}
        self.dirty = False  # set by each change; whoever saves the table clears it

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        queues = self.table.setdefault(topic + _SEPARATOR + group, {})
        before = queues.get(queue_id, NO_OFFSET)
        if offset < before:
            logger.warning(
                "offset of group %s on %s queue %d goes back from %d to %d",
                *(group, topic, queue_id, before, offset),
            )
        queues[queue_id] = offset
        self.dirty = True

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """The committed offset, NO_OFFSET where there is none."""
        queues = self.table.get(topic + _SEPARATOR + group)
        return NO_OFFSET if queues is None else queues.get(queue_id, NO_OFFSET)

    def queues(self, group: str, topic: str) -> dict[int, int]:
        """A copy: queue id -> offset; empty where nothing was committed."""
        return dict(self.table.get(topic + _SEPARATOR + group, {}))

    def topics_of(self, group: str) -> list[str]:
        """Topics on which `group` has offsets (whichTopicByConsumer)."""
        return [topic for topic, owner in self._keys() if owner == group]

    def topics_by_group(self) -> dict[str, list[str]]:
        """Each group's topics_of()."""
        found: dict[str, list[str]] = {}
        for topic, owner in self._keys():
            found.setdefault(owner, []).append(topic)
        return found

    def groups_of(self, topic: str) -> list[str]:
        """Groups with offsets on `topic` (whichGroupByTopic)."""
        return [owner for name, owner in self._keys() if name == topic]

    def clone(self, source: str, target: str, topic: str) -> None:
        """Give `target` the offsets that `source` has on `topic`."""
        queues = self.table.get(topic + _SEPARATOR + source)
        if queues is not None:
            self.table[topic + _SEPARATOR + target] = dict(queues)
            self.dirty = True

    def remove_group(self, group: str) -> None:
        self._remove([key for key in self.table if key.endswith(_SEPARATOR + group)])

    def remove_topic(self, topic: str) -> None:
        """Forget a deleted topic: its queues begin at 0 when it is made again."""
        self._remove([key for key in self.table if key.startswith(topic + _SEPARATOR)])

    def wrapper(self) -> ConsumerOffsetSerializeWrapper:
        """A copy of the table: body of code 43 and content of consumerOffset.json."""
        return ConsumerOffsetSerializeWrapper(
            offset_table={key: dict(queues) for key, queues in self.table.items()}
        )

    def load(self, text: str) -> None:
        """Take what consumerOffset.json holds."""
        stored = ConsumerOffsetSerializeWrapper.from_tree(fastjson.loads(text))
        self.table = stored.offset_table

    def _keys(self) -> list[tuple[str, str]]:
        pairs = (key.partition(_SEPARATOR) for key in self.table)
        return [(topic, group) for topic, _, group in pairs]

    def _remove(self, keys: list[str]) -> None:
        for key in keys:
            del self.table[key]
        self.dirty = self.dirty or bool(keys)
