"""What pops have taken: windows over queues, their journal, and what comes again in time."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator

import numpy
from numpy import int64
from numpy.typing import NDArray

from congreve.base.clock import Clock
from congreve.broker.config import BrokerConfig
from congreve.broker.figures.stats import BrokerStats
from congreve.broker.metadata.attributes import FIFO, MESSAGE_TYPE
from congreve.broker.metadata.metadata import Metadata
from congreve.broker.metadata.offsets import Commit, Place
from congreve.broker.pop.copies import MOVED_MS
from congreve.broker.pop.journal import PopJournal
from congreve.broker.pop.lanes.pop_plan import PopPlans
from congreve.broker.pop.ordered import OrderedBatches
from congreve.broker.pop.progress import PopProgress, age_of_oldest
from congreve.broker.pop.redelivery import PopRedelivery
from congreve.broker.pop.waiting import Key, WaitingPops
from congreve.engine.log.watch import LOOP_WATCHER, watch
from congreve.engine.pop.in_flight import InFlight, PopWindow
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.store import MessageStore
from congreve.records.layout import TOPIC_MAX
from congreve.records.message.properties import RETRY_TOPIC
from congreve.records.message.topics import (
    RETRY_PREFIX,
    REVIVE_PREFIX,
    is_light,
    pop_retry_topic_v2,
    popped_topic,
    retry_topic,
    stored_pop_retry_topic,
)
from congreve.remoting.loop.periodic import Periodic
from congreve.remoting.loop.wake_up_timer import WakeUpTimer
from congreve.remoting.messages.bodies import TopicConfig

logger = logging.getLogger(__name__)

ROUND = 1_000
"""Messages of one round of redelivery, at most; then other work of the event loop can run."""
ROUND_NS = 5_000_000
"""The same in ns."""
MOVED_AT_ONCE = 200
"""Messages that are moved from one retry topic to another in one step."""
REFUSED_S = 1.0
"""Seconds until the next round when the store refuses a copy."""
CLOCK_STEP_MS = 1_000
"""The longest sleep while messages are out: the clock may be set."""
SAVE_S = 5.0
PULLED_ONLY_MS = 30_000
"""How long after its last pop a group counts as one that only pulls, and after a pull as one that
does not only pop."""
PULL_AGAIN_MS = 10_000
"""How long after a pull the event loop asks for the next one, which lanes would serve."""
NO_PULLS_MS = 60_000
"""How long after its last pull no member of a group pulls; a pull may wait for half of it."""
RECENT_BYTES = 64 << 20
"""Before the log's end: they are in memory."""
_NOTHING = numpy.empty(0, int64)
_NEVER_MS = 1 << 62


class Pops:
    """The pops of one broker; its event loop owns it.

    Nothing is made before the first pop. (RocketMQ: PopMessageProcessor, PopReviveService.)
    """

    def __init__(
        self,
        config: BrokerConfig,
        metadata: Metadata,
        store: MessageStore,
        stats: BrokerStats,
        clock: Clock,
        has_members: Callable[[str], bool],
        pull_retries: Callable[[str], bool],
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._topics = metadata.topics
        self._groups = metadata.groups
        self._offsets = metadata.offsets
        self._has_members = has_members
        self._pull_retries = pull_retries
        self._store = store
        self._clock = clock
        self.in_flight = InFlight(config.pops.limits)
        self.journal = PopJournal(store, self.in_flight, clock, lambda: config.store_host)
        self.redelivery = PopRedelivery(config.pops, metadata, store, self.in_flight, stats)
        self.waiting = WaitingPops(_topics_of, config.pops)
        self._popped_ms: dict[Key, int] = {}  # when a group last popped a topic
        self._pulled_ms: dict[Key, int] = {}  # and pulled it, of those that have popped
        self._unordered_ms: dict[Key, int] = {}  # since when it pops without an order
        self.ordered = OrderedBatches()
        self._timer = WakeUpTimer(self._redeliver)
        self._periodic = Periodic(SAVE_S, self._save)
        self._reading: set[int] = set()  # places in the log that a thread reads
        self._used = False
        self.recheck_lanes: Callable[[], None] = lambda: None
        """Makes lanes look again for all pops that wait there."""
        self.wake_light: Callable[[PopWindow], None] = lambda _: None
        """Lets the subscribers of a lite topic look at its window again."""
        self.forget_pulls: Callable[[set[Key]], None] = lambda _: None
        """Lets the event loop get the next pulls of these groups and topics."""
        self._hidden: dict[Key, None] = {}  # pops wait for entries that readers do not see yet
        self.plans = PopPlans(
            config=config,
            groups=metadata.groups.table,
            topics=metadata.topics.table,
            pulled=self._pulled_ms,
            find=self.in_flight.find,
            committed=metadata.offsets.query,
        )
        """Pops that lanes may serve."""
        metadata.topics.listen(self.plans.note_change)
        metadata.groups.listen(self.plans.note_change)
        metadata.offsets.refuse(self._is_settled)
        metadata.offsets.listen(self._offset_noted)
        metadata.offsets.follow(self._settled_in_lanes)
        metadata.topics.listen(self._topic_changed)
        metadata.groups.listen(self._group_changed)

    # --- life

    async def load(self) -> None:
        """Read the journal, and commit the offsets that it has; the store is open.

        A group that is in no table stays: the journal has each deletion before the table, and a
        slave may become the master before it has copied the group. A slave, whose log another one
        may replace, reads nothing. Raises StoreError.
        """
        if self._config.is_slave or not await asyncio.to_thread(self._load):
            return
        self._used = True
        for topic in {window.topic for window in self._own_windows()}:
            self._topic_changed(topic, self._topics.table.get(topic))
        for window in self._own_windows():
            self.commit(window)
            committed = self._offsets.query(window.group, window.topic, window.queue_id)
            self._follow(window, committed)  # of members that pulled
        for group, topic in {(window.group, window.topic) for window in self._own_windows()}:
            self._popped_ms[group, popped_topic(group, topic)] = 0

    def _own_windows(self) -> Iterator[PopWindow]:
        return (each for each in self.in_flight.all_windows() if not is_light(each.topic))

    def _load(self) -> bool:
        for topic in {*self._store.queues.topics(), *self._topics.table}:
            if topic.startswith(REVIVE_PREFIX):
                text = "RocketMQ's journal of pops is not read: what was out does not come again"
                logger.warning("%s: %s", topic, text)
        used = self.journal.load()
        if used:
            self.redelivery.settle_copied(self.in_flight, self.journal.end)
        return used

    def start(self) -> None:
        """Start redelivery, if there was a pop before."""
        if self._used:
            self._begin()

    def _begin(self) -> None:
        self._used = True
        self._periodic.start()
        self.changed()

    def note_stopping(self) -> None:
        """The broker closes all connections: that takes nothing back from their clients."""
        self.redelivery.stopping = True

    async def stop(self) -> None:
        """Stop redelivery and save the windows; the store is still open. Idempotent."""
        self._timer.stop()
        self._periodic.stop()
        self.waiting.stop()
        if self._used:
            self._used = False
            await self.journal.close()

    # --- windows

    def prepare(self, group: str, topic: str) -> Awaitable[object] | None:
        """Create what the pops of a group need; returns what to wait for until it is saved."""
        retry = stored_pop_retry_topic(group, topic)
        separate = self._config.pops.use_separate_retry_queue
        if separate or retry not in self._topics.table:
            queues = self._topics.table[topic].write_queue_nums if separate else 1
            self._topics.create_internal(retry, max(queues, 1), on_use=True)
        return self._metadata.missing(topics=(retry,), group=group)

    def window(self, group: str, topic: str, queue_id: int, from_end: bool) -> PopWindow:
        """The window of a group over a queue, which begins at the group's offset.

        Without one a pop begins at the queue's first message, or `from_end` at its last, if the
        first is not in memory (RocketMQ: getInitOffset).
        """
        window = self.in_flight.find(group, topic, queue_id)
        if window is None:
            if not self._used:
                self._begin()
            committed = self._offsets.query(group, topic, queue_id)
            begin = committed if committed >= 0 else self._first(topic, queue_id, from_end)
            window = self.in_flight.window(group, topic, queue_id, begin)
            self._offsets.commit(group, topic, queue_id, begin)
        return window

    def light_window(self, group: str, light: str, queue_id: int, begin: int) -> PopWindow:
        """window() over a lite topic, in a queue of its parent; only the journal has its place."""
        if not self._used:
            self._begin()
        return self.in_flight.window(group, light, queue_id, begin)

    def _offset_noted(self, place: Place, committed: int) -> None:
        """Let pops follow a committed offset that is not theirs."""
        if not self._used:
            return
        window = self.in_flight.find(*place)
        if window is not None:
            self._follow(window, committed)
        elif self.plans.note_offset(place, committed):
            self.recheck_lanes()

    def _follow(self, window: PopWindow, committed: int) -> None:
        if committed > window.next:  # members that pull have come further
            window.take(_NOTHING, committed, self._clock.now(), 0)
        elif 0 <= committed < window.begin:  # an administrator has set it back
            window.reset(committed)
            self.recheck_lanes()

    def _first(self, topic: str, queue_id: int, from_end: bool) -> int:
        low = max(self._store.min_offset(topic, queue_id), 0)
        if not from_end or topic.startswith(RETRY_PREFIX):
            return low
        if low == 0 and self._store.store_time_in_memory(topic, queue_id, 0)[0] >= 0:
            return 0
        return max(self._store.max_offset(topic, queue_id) - 1, low)

    def commit(self, window: PopWindow) -> None:
        """Commit the offset before which all messages of a window are settled."""
        for commit in self._commits([window]):
            # Not commit(): it collects first what lanes have settled since, which is further.
            self._offsets.note(*commit)

    def _commits(self, windows: list[PopWindow]) -> Iterator[Commit]:
        for window in windows:
            if is_light(window.topic):  # only the journal has it
                continue
            place = window.group, window.topic, window.queue_id
            if window.begin > self._offsets.query(*place):
                yield (*place, window.begin)

    def _settled_in_lanes(self) -> Iterator[Commit]:
        return self._commits(self.in_flight.settled_windows())

    def changed(self) -> None:
        """Write changes of windows to the journal, and wake redelivery in time."""
        self.journal.changed()
        self.set_timer()

    def settled(self, window: PopWindow, *, ordered: bool) -> None:
        """Report acknowledged messages."""
        self.commit(window)
        self.journal.changed()
        if ordered and not window.out:
            self.ordered.end(window)
            self._wake(window)

    def _wake(self, window: PopWindow) -> None:
        """Let the group look at a window again."""
        if is_light(window.topic):
            return self.wake_light(window)
        self.waiting.wake((window.group, popped_topic(window.group, window.topic)))

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Let the pops of a group continue at another offset, and forget what is out; False if it
        pops nothing there."""
        window = self.in_flight.find(group, topic, queue_id)
        if window is None:
            return False
        window.reset(offset)
        self.ordered.end(window)
        if not is_light(topic):
            self._offsets.note(group, topic, queue_id, offset)
        self.journal.changed()
        self._wake(window)
        self.recheck_lanes()
        return True

    def beginning(self, group: str, topic: str, queue_id: int) -> int | None:
        """Where a member that pulls begins: behind all that pops have taken, because what is out
        comes again by the retry topic. None without pops."""
        self.note_pull(group, topic)
        window = self.in_flight.find(group, topic, queue_id)
        return None if window is None else window.next

    def progress(self, group: str, topic: str, queue_id: int) -> PopProgress | None:
        """What administrators see of a queue; None if the group does not pop it."""
        window = self.in_flight.find(group, topic, queue_id)
        if window is None:
            return None
        return PopProgress(
            next_offset=window.next,
            out=window.out,
            oldest_ms=age_of_oldest(window, self._store),
            without_order=self._lacks_order(group, topic),
            came_again=self.redelivery.again_counts[group, topic, queue_id],
            dead_letters=self.redelivery.dead_counts[group, topic, queue_id],
        )

    # --- members that pull

    def note_pop(self, key: Key, *, ordered: bool) -> None:
        """A member of the group pops the topic."""
        if ordered:
            self._unordered_ms.pop(key, None)
        elif key not in self._unordered_ms:
            self._unordered_ms[key] = self._clock.now()
            if self._lacks_order(*key):
                logger.warning(
                    "group %s pops topic %s without its order, although its message.type is FIFO:"
                    " let the members pop with order=true",
                    *key,
                )
        self._popped_ms[key] = self._clock.now()

    def _lacks_order(self, group: str, topic: str) -> bool:
        config = self._topics.table.get(topic)
        attributes = (config.attributes if config else None) or {}
        return attributes.get(MESSAGE_TYPE) == FIFO and (group, topic) in self._unordered_ms

    def note_pull(self, group: str, topic: str) -> None:
        """A member of the group pulls the topic."""
        if (group, topic) in self._popped_ms:
            if (group, topic) not in self._pulled_ms:
                self._pulled_ms[group, topic] = self._clock.now()
                self.plans.note_change()
                self.recheck_lanes()
            self._pulled_ms[group, topic] = self._clock.now()

    def _look_for_pulls(self) -> None:
        """Let lanes serve the pops of a group again that no member pulls any more."""
        now = self._clock.now()
        ages = {key: now - pulled_ms for key, pulled_ms in self._pulled_ms.items()}
        gone = [key for key, age in ages.items() if age >= NO_PULLS_MS]
        for key in gone:
            del self._pulled_ms[key], ages[key]
        if gone:
            self.plans.note_change()
            self.recheck_lanes()
        if doubtful := {key for key, age in ages.items() if age >= PULL_AGAIN_MS}:
            self.forget_pulls(doubtful)

    def _pulls(self, key: Key) -> bool:
        """Whether only members that pull are left, which read another retry topic."""
        pulled, popped = self._pulled_ms.get(key, -1), self._popped_ms.get(key, 0)
        if pulled < 0 or self.waiting.of_key(key):
            return False
        return pulled > popped or self._clock.now() - popped > PULLED_ONLY_MS

    def _move_unread(self) -> None:
        """Let members that pull read what waits to be popped again."""
        if not self._pulled_ms:
            return
        for window in self._own_windows():
            self._move_to_pulls(window)
        self.set_timer()

    def _move_to_pulls(self, window: PopWindow) -> None:
        topic = popped_topic(window.group, window.topic)
        if topic != window.topic and self._pulls((window.group, topic)):
            self._move(window)

    def take_over_retries(self, group: str, topic: str) -> None:
        """Let pops of a topic get what is in the retry topic of members that pull, if none does.

        It is what such members left, and what consumers sent back.
        """
        retries = retry_topic(group)
        config = self._topics.table.get(retries)
        if config is None or topic == retries or self._pull_retries(group):
            return
        if self._clock.now() - self._pulled_ms.get((group, topic), 0) < PULLED_ONLY_MS:
            return
        moved = False
        for queue_id in range(config.read_queue_nums):
            end = self._store.max_offset(retries, queue_id)
            if end > max(self._offsets.query(group, retries, queue_id), 0):
                moved |= self._move(self.window(group, retries, queue_id, False))
        if moved:
            self.changed()

    def _move(self, window: PopWindow) -> bool:
        """Move what no pop has taken to another retry topic, one round; False if there is none.

        The journal has it before the copies, so that a start settles what was copied.
        """
        end = self._store.max_offset(window.topic, window.queue_id)
        end = min(end, window.next + min(MOVED_AT_ONCE, window.room))
        if window.next >= end:
            return False
        if not window.take(numpy.arange(window.next, end), end, MOVED_MS, 0):
            return False
        self.journal.write()
        return True

    def _save(self) -> None:
        self._look_for_pulls()
        self._move_unread()
        self.journal.save()

    def _is_settled(self, place: Place, offset: int, known: int) -> bool:
        """Whether an offset of a member that pulls is before what pops have settled.

        Of a group without members it is an administrator's.
        """
        window = self.in_flight.find(*place) if self._used else None
        return window is not None and offset < window.begin and self._has_members(place[0])

    def _topic_changed(self, topic: str, config: TopicConfig | None) -> None:
        if self._used and config is None:
            self.in_flight.drop_topic(topic)
            self._forget(topic=topic)

    def _group_changed(self, group: str) -> None:
        if self._used and group not in self._groups.table:
            self.in_flight.drop_group(group)
            self._forget(group=group)

    def _forget(self, *, group: str | None = None, topic: str | None = None) -> None:
        """Forget a group or topic whose windows were dropped."""
        self.waiting.end_key(group=group, topic=topic)
        self.redelivery.forget(group=group, topic=topic)
        self.ordered.forget(group=group, topic=topic)
        for table in (self._popped_ms, self._pulled_ms, self._unordered_ms):
            for key in [key for key in table if group == key[0] or topic == key[1]]:
                del table[key]
        self.recheck_lanes()
        self.journal.changed()

    # --- arrivals

    def is_readable(self, window: PopWindow) -> bool:
        """Whether a window's next message is in memory; if not, a thread reads it, and wakes."""
        queue = self._store.queues.find(window.topic, window.queue_id)
        if queue is None:
            return True
        return self.is_place_readable(queue, window.next, lambda: self._wake(window))

    def is_place_readable(self, queue: ConsumeQueue, offset: int, wake: Callable[[], None]) -> bool:
        """is_readable() of a message of a queue; the thread's end calls `wake` on the loop."""
        if not queue.min <= offset < self._store.log.end_of(queue):
            return True
        if self._store.log.max_offset - queue[offset][0] <= RECENT_BYTES:
            return True
        _, place = self._store.store_time_in_memory(queue.topic, queue.queue_id, offset)
        if place < 0 or place in self._reading:
            return place < 0
        loop = asyncio.get_running_loop()

        def done() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._was_read, place, wake)

        self._reading.add(place)
        if not self._store.cold_reads.fetch(place, done):
            self._reading.discard(place)
            return True
        return False

    def _was_read(self, place: int, wake: Callable[[], None]) -> None:
        self._reading.discard(place)
        wake()

    def watch(self, key: Key, topic: str, queue_id: int) -> None:
        """Ask for a call of arrived() for the next message of a queue, or of shown() if readers do
        not see it yet."""
        queue = self._store.queues.get(topic, queue_id)
        watch(self._store.log.lock, queue, LOOP_WATCHER)
        if self._store.log.is_hiding(queue):
            self._hidden[key] = None

    def watch_retries(self, group: str, topic: str) -> None:
        """watch() for all queues from which a group gets messages of a topic again."""
        for retries in retry_topics(group, topic):
            config = self._topics.table.get(retries)
            for queue_id in range(0 if config is None else config.read_queue_nums):
                self.watch((group, topic), retries, queue_id)

    def arrived(self, queue: ConsumeQueue) -> None:
        """Report a new entry of a queue; those for which no pop waits are ignored."""
        if self._used:
            self.waiting.wake_topic(queue.topic)

    def shown(self) -> None:
        """Report that readers see more of the log than before."""
        hidden, self._hidden = self._hidden, {}
        for key in hidden:
            self.waiting.wake(key)

    # --- redelivery

    def set_timer(self, least_s: float = 0.0) -> None:
        """Look at what is due in time, in `least_s` at the earliest."""
        now = self._clock.now()
        look_ms = self.in_flight.plan_look(now + CLOCK_STEP_MS)
        if look_ms < _NEVER_MS:
            self._timer.set(max((look_ms - now) / 1000, least_s))

    def _redeliver(self) -> None:
        """Give groups again what is due, one round."""
        until_ns = time.monotonic_ns() + ROUND_NS
        refused = not self._store.writable
        for window, rows in self.in_flight.due(self._clock.now(), ROUND):
            done = 0
            while done < len(rows) and self._store.writable and time.monotonic_ns() < until_ns:
                done += self._redeliver_ordinary(window, rows[done:], until_ns)
                if done < len(rows) and time.monotonic_ns() < until_ns:
                    refused |= not self._redeliver_one(window, rows[done])
                    done += 1
            for offset, pop_ms, *_ in rows[done:].tolist():
                window.give_back(offset, pop_ms)
            self.commit(window)
            if done == len(rows) and rows[-1, 1] == MOVED_MS:  # there may be more of them
                self._move_to_pulls(window)
        self.journal.write()
        self.set_timer(REFUSED_S if refused else 0.0)

    def _redeliver_ordinary(self, window: PopWindow, rows: NDArray[int64], until_ns: int) -> int:
        topic, host = self._retry_topic(window), self._config.store_host
        return self.redelivery.again_ordinary(window, rows, host, topic=topic, until_ns=until_ns)

    def _redeliver_one(self, window: PopWindow, row: NDArray[int64]) -> bool:
        offset, pop_ms, _, _, ordered = row.tolist()
        if ordered:  # the next pop takes it again, in place
            self._wake(window)
            return True
        moved = pop_ms == MOVED_MS
        if moved and window.topic == retry_topic(window.group):
            topic = self._popped_again(window, offset)
        else:
            topic = self._retry_topic(window)
        host = self._config.store_host
        return self.redelivery.again(window, offset, pop_ms, host, topic=topic, moved=moved)

    def _retry_topic(self, window: PopWindow) -> str:
        """The topic from which the group gets messages of a window again."""
        if self._pulls((window.group, popped_topic(window.group, window.topic))):
            return retry_topic(window.group)
        if window.topic.startswith(RETRY_PREFIX):
            return window.topic
        return stored_pop_retry_topic(window.group, window.topic)

    def _popped_again(self, window: PopWindow, offset: int) -> str:
        """The topic from which pops get a message that is in the retry topic of members that pull.

        One whose topic is not known comes with the topic that the group popped last. The window is
        there if members that pull come back.
        """
        group = window.group
        record = self.redelivery.stored(window.topic, window.queue_id, offset)
        topic = "" if record is None else record.properties.get(RETRY_TOPIC, "")
        if not self._can_pop_again(group, topic):
            known = [
                (popped_ms, each)
                for (name, each), popped_ms in self._popped_ms.items()
                if name == group and each != window.topic
            ]
            if not known:
                return window.topic
            _, topic = max(known)
        self._popped_ms.setdefault((group, topic), 0)
        retries = stored_pop_retry_topic(group, topic)
        self.window(group, retries, 0, False)
        return retries

    def _can_pop_again(self, group: str, topic: str) -> bool:
        """Whether there is a topic, and a retry topic of it can be."""
        if topic not in self._topics.table or topic.startswith(RETRY_PREFIX):
            return False
        return len(stored_pop_retry_topic(group, topic).encode()) <= TOPIC_MAX


def retry_topics(group: str, topic: str) -> tuple[str, ...]:
    """The topics from which a group gets messages of a topic again."""
    again = stored_pop_retry_topic(group, topic), pop_retry_topic_v2(group, topic)
    return (*again, retry_topic(group))


def _topics_of(key: Key) -> tuple[str, ...]:
    """The topics in which a group's messages of a topic are."""
    return key[1], *retry_topics(*key)
