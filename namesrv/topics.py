"""Which broker names have which topics, and with which queues.

Most topics of a cluster are on the same brokers with the same settings. Such topics share one
Placement, so that a million of them take little more than their names, and one change is worked
out once for all of them.
"""

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Set
from functools import partial
from typing import NamedTuple

from congreve.remoting.messages.bodies import TopicConfig

_SHARDS = 1 << 10
"""Parts of the table: no step of the event loop copies or enlarges all of it."""
_TOPICS_OF_STEP = 256


class Queues(NamedTuple):
    """Queues of a topic on one broker name (RocketMQ: QueueData)."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int


Change = Callable[[tuple[Queues, ...]], tuple[Queues, ...]]


class Placement:
    """The queues of topics that have the same ones, by broker name; `topics` is their number.

    (RocketMQ: a value of RouteInfoManager.topicQueueTable.)
    """

    __slots__ = ("queues", "topics")

    def __init__(self, queues: tuple[Queues, ...]) -> None:
        self.queues = queues
        self.topics = 0


class TopicTable:
    """The placement of each topic; `entries` counts a topic once for each broker name that has it.

    (RocketMQ: RouteInfoManager.topicQueueTable.)
    """

    def __init__(self) -> None:
        self._shards: list[dict[str, Placement]] = [{} for _ in range(_SHARDS)]
        self._shared: dict[tuple[Queues, ...], Placement] = {}
        self._nowhere = Placement(())
        self.entries = 0

    def __iter__(self) -> Iterator[str]:
        for shard in self._shards:
            yield from shard

    def get(self, topic: str) -> Placement | None:
        """A topic's placement, None without queues."""
        return self._shard(topic).get(topic)

    def portions(self) -> Iterator[list[str]]:
        """All topics, in portions for one step each; the table may change between them."""
        for shard in self._shards:
            topics = list(shard)
            for first in range(0, len(topics), _TOPICS_OF_STEP):
                yield topics[first : first + _TOPICS_OF_STEP]

    def count_new(self, broker_name: str, topics: Iterable[str]) -> int:
        """How many of these topics the broker name does not have."""
        known: dict[Placement, bool] = {self._nowhere: False}
        new = set()
        for topic in topics:
            placement = self._shard(topic).get(topic, self._nowhere)
            has = known.get(placement)
            if has is None:
                has = any(each.broker_name == broker_name for each in placement.queues)
                known[placement] = has
            if not has:
                new.add(topic)
        return len(new)

    def take(self, broker_name: str, topics: Iterable[TopicConfig]) -> None:
        """Add and change topics of a broker name."""
        alike = defaultdict(list)
        for t in topics:
            settings = t.read_queue_nums, t.write_queue_nums, t.perm, t.topic_sys_flag
            alike[settings].append(t.topic_name)
        for settings, names in alike.items():
            self._change(names, partial(_with, Queues(broker_name, *settings)))

    def remove(self, topics: Iterable[str], broker_names: Set[str]) -> None:
        """Remove the queues on these broker names."""
        self._change(topics, partial(_without, broker_names))

    def change_perm(
        self, broker_name: str, change: Callable[[int], int]
    ) -> Generator[None, None, int]:
        """Change the permissions of a broker name's queues; returns their number."""
        count = 0
        for topics in self.portions():
            having = len(topics) - self.count_new(broker_name, topics)
            if having:
                self._change(topics, partial(_with_perm, broker_name, change))
            count += having
            yield
        return count

    def _change(self, topics: Iterable[str], change: Change) -> None:
        shards, nowhere = self._shards, self._nowhere
        changed: dict[Placement, Placement] = {}
        moved: dict[Placement, int] = {}  # topics that leave a placement
        for topic in topics:
            shard = shards[hash(topic) % _SHARDS]
            old = shard.get(topic, nowhere)
            new = changed.get(old)
            if new is None:
                new = changed[old] = self._placement(change(old.queues))
                moved[old] = 0
            if new is old:
                continue
            moved[old] += 1
            if new is nowhere:
                del shard[topic]
            else:
                shard[topic] = new
        self._count(changed, moved)

    def _placement(self, queues: tuple[Queues, ...]) -> Placement:
        if not queues:
            return self._nowhere
        found = self._shared.get(queues)
        if found is None:
            found = self._shared[queues] = Placement(queues)
        return found

    def _count(self, changed: dict[Placement, Placement], moved: dict[Placement, int]) -> None:
        """Count moved topics, and forget placements that no topic has any more."""
        for old, new in changed.items():
            old.topics -= moved[old]
            new.topics += moved[old]
            self.entries += moved[old] * (len(new.queues) - len(old.queues))
        for placement in {*changed, *changed.values()}:
            if not placement.topics:
                self._shared.pop(placement.queues, None)

    def _shard(self, topic: str) -> dict[str, Placement]:
        return self._shards[hash(topic) % _SHARDS]


def _with(new: Queues, queues: tuple[Queues, ...]) -> tuple[Queues, ...]:
    others = (each for each in queues if each.broker_name != new.broker_name)
    return tuple(sorted((*others, new)))


def _without(broker_names: Set[str], queues: tuple[Queues, ...]) -> tuple[Queues, ...]:
    return tuple(each for each in queues if each.broker_name not in broker_names)


def _with_perm(
    broker_name: str, change: Callable[[int], int], queues: tuple[Queues, ...]
) -> tuple[Queues, ...]:
    return tuple(
        each._replace(perm=change(each.perm)) if each.broker_name == broker_name else each
        for each in queues
    )
