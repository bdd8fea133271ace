"""Where a group begins in a lite topic (RocketMQ 5.5: LiteSubscriptionRegistryImpl.resetOffset)."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial

from congreve.broker.lite.lite_topics import LiteTopics
from congreve.broker.pop.service import Pops
from congreve.engine.lite.lite_queue import LiteQueue
from congreve.engine.store import MessageStore
from congreve.records.message.topics import light_topic

StoreTime = Callable[[int], int]
Start = Callable[[Sequence[int], int, StoreTime], int | None]
"""Makes the offset of the offsets of all messages, the group's next one (-1: it has none) and the
store time of an offset; None: the group continues where it is."""


def from_first(offsets: Sequence[int], at: int, time: StoreTime) -> int | None:
    """From the first message on."""
    return offsets[0]


def from_end(offsets: Sequence[int], at: int, time: StoreTime) -> int | None:
    """From the next message on that is sent."""
    return offsets[-1] + 1


def from_offset(offset: int) -> Start:
    """From an offset on."""
    return lambda offsets, at, time: offset


def from_tail(messages: int) -> Start:
    """From so many messages before the group's next one on."""

    def start(offsets: Sequence[int], at: int, time: StoreTime) -> int | None:
        if at < 0:
            return None
        return offsets[max(bisect_left(offsets, at) - messages, 0)]

    return start


def from_time(timestamp_ms: int) -> Start:
    """From the first message on that was stored at a time or later."""

    def start(offsets: Sequence[int], at: int, time: StoreTime) -> int | None:
        found = bisect_left(offsets, timestamp_ms, key=time)
        return offsets[found] if found < len(offsets) else offsets[-1] + 1

    return start


class LiteStarts:
    """Makes and moves the windows of groups over lite topics.

    (RocketMQ 5.5: LiteSubscriptionRegistryImpl.)
    """

    def __init__(self, topics: LiteTopics, pops: Pops, store: MessageStore) -> None:
        self._topics = topics
        self._pops = pops
        self._store = store

    def begin(self, group: str, parent: str, name: str, start: Start) -> None:
        """Let a group begin at `start` in a lite topic; one without messages has only one place."""
        light = light_topic(parent, name)
        for queue in self._topics.queues(parent):
            state = queue.state(name)
            if state is None:
                continue
            window = self._pops.in_flight.find(group, light, queue.queue.queue_id)
            offsets = queue.offsets(name, 0, state.messages)
            begin = start(
                offsets,
                -1 if window is None else window.begin,
                partial(self._time, queue),
            )
            if begin is None:
                continue
            if not self._pops.reset(group, light, queue.queue.queue_id, begin):
                self._pops.light_window(group, light, queue.queue.queue_id, begin)

    def _time(self, queue: LiteQueue, offset: int) -> int:
        return self._store.store_time(queue.queue.topic, queue.queue.queue_id, offset)

    def first(self, queue: LiteQueue, name: str) -> int | None:
        """Where a group begins that was never in a lite topic: at its first message, or at its last
        one if the first is not in memory (RocketMQ: getInitOffset). None without messages."""
        state = queue.state(name)
        if state is None:
            return None
        topic, queue_id = queue.queue.topic, queue.queue.queue_id
        time_ms, _ = self._store.store_time_in_memory(topic, queue_id, state.first)
        return state.first if time_ms >= 0 else state.last
