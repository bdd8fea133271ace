"""The lite topics of a broker (RocketMQ 5.5: LiteLifecycleManager)."""

import asyncio
import logging
import time
from collections.abc import Callable, Generator, Iterator

from congreve.base.clock import Clock
from congreve.broker.config import BrokerConfig
from congreve.broker.lite.rules import bound_topic, expiration_ms, is_parent
from congreve.broker.metadata.metadata import Metadata
from congreve.broker.pop.service import Pops
from congreve.engine.lite.lite_queue import LiteQueue
from congreve.engine.log.watch import LOOP_WATCHER, watch
from congreve.engine.pop.in_flight import PopWindow
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.store import MessageStore
from congreve.records.message.properties import LITE_TOPIC
from congreve.records.message.topics import light_topic, lite_of
from congreve.remoting.loop.periodic import Periodic
from congreve.remoting.loop.pieces import Pieces
from congreve.remoting.messages.bodies import TopicConfig

logger = logging.getLogger(__name__)

ROUND = 2_000
"""Entries of a queue that one step of the event loop looks at."""
LOAD_ROUND = 20_000
"""The same at a start, in a thread of its own."""
UNWATCHED_S = 0.1
"""How long entries wait for the index while no client subscribes to a lite topic of their topic."""
EXPIRE_S = 120.0

Told = Callable[[str, list[str]], None]


class LiteTopics:
    """Knows the lite topics of all parent topics, and deletes those that are idle.

    `arrived` gets a parent topic and those of its watched lite topics that have new messages. One
    event loop owns it; long work takes its turns in `pieces`. (RocketMQ 5.5: LiteLifecycleManager.)
    """

    def __init__(
        self,
        config: BrokerConfig,
        metadata: Metadata,
        store: MessageStore,
        clock: Clock,
        pops: Pops,
        pieces: Pieces,
    ) -> None:
        self._config = config
        self._topics = metadata.topics
        self._groups = metadata.groups
        self._store = store
        self._clock = clock
        self._pops = pops
        self._pieces = pieces
        self._parents: dict[str, list[LiteQueue]] = {}
        self._watched: dict[str, dict[str, None]] = {}
        self._behind: dict[LiteQueue, None] = {}
        self._handle: asyncio.Handle | None = None
        self._expiry = Periodic(EXPIRE_S, self.expire)
        self._running = False
        self.tell: Told = lambda parent, names: None
        """Gets the watched lite topics with new messages."""
        self.tell_full: Callable[[bool], None] = lambda is_full: None
        """Learns whether there are as many lite topics as there may be."""
        metadata.topics.listen(self._topic_changed)

    # --- life

    async def load(self) -> None:
        """Make the index of all parent topics; the store is open. A slave does not."""
        if self._config.is_slave:
            return
        for name, topic in self._topics.table.items():
            if is_parent(topic):
                self._open(name, topic)
        for window in self._pops.in_flight.all_windows():
            lite = lite_of(window.topic)
            if lite is not None and (
                lite[0] not in self._parents or window.group not in self._groups.table
            ):
                self._drop(window)
        begun = time.monotonic()
        await asyncio.to_thread(self._read_all)
        if self._parents:
            seconds = time.monotonic() - begun
            logger.info("%d lite topics; their index took %.1f s", len(self), seconds)

    def _read_all(self) -> None:
        for name, queues in self._parents.items():
            ttl_ms = expiration_ms(self._topics.table[name])
            for queue in queues:
                while queue.catch_up(LOAD_ROUND, ttl_ms):
                    pass

    def start(self) -> None:
        """Follow the queues of parent topics."""
        if not self._config.is_slave:
            self._running = True
            self._expiry.start()
            self._follow_later(list(self._all_queues()))

    def stop(self) -> None:
        """Follow no queue any more. Idempotent."""
        self._running = False
        self._expiry.stop()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    # --- what there is

    def __len__(self) -> int:
        return sum(queue.count for queue in self._all_queues())

    @property
    def is_full(self) -> bool:
        """Whether no further lite topic may be created."""
        return len(self) >= self._config.limits.max_lmq_consume_queue_num

    def queues(self, parent: str) -> list[LiteQueue]:
        """The queues of a parent topic, by their ids."""
        return self._parents.get(parent, [])

    def may_have(self, parent: str, name: str) -> bool:
        """Whether a lite topic may get a message: it has some, or one more may be created."""
        queues = self.queues(parent)
        if not queues or not self.is_full:
            return True
        return any(queue.state(name) is not None for queue in queues)

    def light_of(self, group: str, parent: str, queue_id: int, offset: int) -> str | None:
        """The light topic of a message, which Java's client 5.2 does not name in its handle; None
        unless the group consumes lite topics of the parent."""
        if parent not in self._parents or bound_topic(self._groups.table.get(group)) != parent:
            return None
        record = self._pops.redelivery.stored(parent, queue_id, offset)
        lite = None if record is None else record.properties.get(LITE_TOPIC)
        return None if lite is None else light_topic(parent, lite)

    def _all_queues(self) -> Iterator[LiteQueue]:
        for queues in self._parents.values():
            yield from queues

    # --- topics

    def _topic_changed(self, name: str, topic: TopicConfig | None) -> None:
        if not self._running:
            return
        if topic is not None and is_parent(topic):
            self._follow_later(self._open(name, topic))
            return
        for queue in self._parents.pop(name, []):
            self._behind.pop(queue, None)

    def _open(self, name: str, topic: TopicConfig) -> list[LiteQueue]:
        """Begin the index of the queues that have none; returns them."""
        known = self._parents.setdefault(name, [])
        new = [
            LiteQueue(self._store.log, self._store.queues.get(name, queue_id))
            for queue_id in range(len(known), max(topic.read_queue_nums, topic.write_queue_nums))
        ]
        for queue in new:
            for watched in self._watched.get(name, ()):
                queue.watch(watched, True)
        known += new
        return new

    def watch(self, parent: str, name: str) -> None:
        """Tell of new messages of a lite topic from now on."""
        self._watched.setdefault(parent, {})[name] = None
        for queue in self.queues(parent):
            queue.watch(name, True)

    def catch_up(self, parent: str) -> None:
        """Let the index have all messages that a topic has now."""
        topic = self._topics.table.get(parent)
        ttl_ms = 0 if topic is None else expiration_ms(topic)
        for queue in self.queues(parent):
            left = self._store.log.end_of(queue.queue) - queue.end
            while left > 0 and (count := queue.catch_up(min(left, ROUND), ttl_ms)):
                left -= count

    def unwatch(self, parent: str, name: str) -> None:
        """Tell of them no longer."""
        watched = self._watched.get(parent, {})
        watched.pop(name, None)
        if not watched:
            self._watched.pop(parent, None)
        for queue in self.queues(parent):
            queue.watch(name, False)

    # --- following

    def arrived(self, queue: ConsumeQueue) -> None:
        """Report a new entry of any queue."""
        found = self._parents.get(queue.topic)
        if found is not None and queue.queue_id < len(found):
            self._follow_later([found[queue.queue_id]])

    def shown(self) -> None:
        """Report that readers see more of the log than before."""
        self._follow_later(list(self._all_queues()))

    def _follow_later(self, queues: list[LiteQueue]) -> None:
        if not self._running:
            return
        self._behind |= dict.fromkeys(queues)
        if self._behind and self._handle is None:
            loop = asyncio.get_running_loop()
            if any(queue.queue.topic in self._watched for queue in self._behind):
                self._handle = loop.call_soon(self._follow)
            else:
                self._handle = loop.call_later(UNWATCHED_S, self._follow)

    def _follow(self) -> None:
        self._handle = None
        behind, self._behind = self._behind, {}
        left = []
        for lites in behind:
            name = lites.queue.topic
            topic = self._topics.table.get(name)
            if topic is None or name not in self._parents:
                continue
            watch(self._store.log.lock, lites.queue, LOOP_WATCHER)
            if lites.catch_up(ROUND, expiration_ms(topic)) == ROUND:
                left.append(lites)
            if names := lites.arrivals():
                self.tell(name, names)
        self.tell_full(self.is_full)
        if left:
            self._behind |= dict.fromkeys(left)
            if self._handle is None:
                self._handle = asyncio.get_running_loop().call_soon(self._follow)

    # --- the end of lite topics

    async def expire(self) -> None:
        """Delete lite topics that had no message for too long, and those without messages."""
        for name in list(self._parents):
            if count := await self._pieces.run(self._expire_steps(name)):
                logger.info("%d lite topics of %s have expired", count, name)
        self.tell_full(self.is_full)

    def _expire_steps(self, parent: str) -> Generator[None, None, int]:
        count, topic = 0, self._topics.table.get(parent)
        ttl_ms = 0 if topic is None else expiration_ms(topic)
        before_ms = self._clock.now() - ttl_ms if ttl_ms else 0
        for queue in self.queues(parent):
            start, done = 0, False
            while not done and queue in self.queues(parent):
                gone, start = queue.expire(before_ms, start, ROUND)
                self._drop_windows(parent, queue, gone)
                count += len(gone)
                done = start == 0
                yield
        return count

    def _drop_windows(self, parent: str, queue: LiteQueue, names: list[str]) -> None:
        """Forget how far groups have come in lite topics that are gone."""
        if not names:
            return
        bound = [
            group for group, config in self._groups.table.items() if bound_topic(config) == parent
        ]
        for group in bound:
            for name in names:
                window = self._pops.in_flight.find(
                    group, light_topic(parent, name), queue.queue.queue_id
                )
                if window is not None:
                    self._drop(window)
        self._pops.journal.changed()

    def _drop(self, window: PopWindow) -> None:
        self._pops.ordered.end(window)
        self._pops.in_flight.drop(window)
