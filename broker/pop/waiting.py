"""Pops that wait for messages (RocketMQ: PopLongPollingService)."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable

from congreve.broker.config_parts import PopConfig
from congreve.broker.pop.lanes.pop_plan import WaitCounter
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.connection import Connection

WAITING_BYTES_MAX = 64 << 20
"""Of all waiting requests, by an estimate of their size."""
KEYS_MAX = 100_000
"""Groups and topics whose pops may wait in lanes; counters stay."""
REQUEST_SIZE = 1024
"""Bytes of a waiting request without its fields, about."""
ROUND = 64
"""Requests that one wake-up serves before other work of the event loop can run."""

Key = tuple[str, str]
"""A group and a topic."""


class WaitingPop:
    """A request that is held until there are messages for it, or its time is over.

    `serve()` answers it and returns True if there is something for it. `end()` answers it without.
    Its body means nothing, and is not kept. (RocketMQ: PopRequest.)
    """

    __slots__ = ("connection", "end", "key", "queue_id", "serve", "size", "timer")

    def __init__(
        self,
        key: Key,
        queue_id: int,
        request: RemotingCommand,
        connection: Connection,
        serve: Callable[[], bool],
        end: Callable[[], None],
    ) -> None:
        self.key = key
        self.queue_id = queue_id
        self.connection = connection
        self.serve = serve
        self.end = end
        request.body = b""
        self.size = REQUEST_SIZE + sum(map(len, request.ext_fields.values()))
        self.timer: asyncio.TimerHandle | None = None


class WaitingPops:
    """Requests that wait, by group and topic; one event loop owns it.

    `topics_of` returns the topics in which a key's messages are. (RocketMQ: PopLongPollingService.)
    """

    def __init__(self, topics_of: Callable[[Key], Iterable[str]], limits: PopConfig) -> None:
        self._topics_of = topics_of
        self._limits = limits
        self._waiting: dict[Key, dict[WaitingPop, None]] = {}
        self._keys: dict[str, dict[Key, None]] = {}  # by topic
        self._size = 0
        self._woken: OrderedDict[Key, None] = OrderedDict()
        self._scheduled = False
        self._total = WaitCounter(None)
        self._counters: dict[Key, WaitCounter] = {}

    def __len__(self) -> int:
        return self._total.on_loop + self._total.in_lanes

    def of_key(self, key: Key) -> int:
        """How many wait for a group and a topic, in lanes, too."""
        counter = self._counters.get(key)
        return len(self._waiting.get(key, ())) + (0 if counter is None else counter.in_lanes)

    def counter(self, key: Key) -> WaitCounter | None:
        """Counts the pops of a group and topic that wait in lanes; None: there are too many."""
        if key not in self._counters:
            if len(self._counters) == KEYS_MAX:
                return None
            self._counters[key] = WaitCounter(self._total)
            self._count_held(key)
        return self._counters[key]

    def _count_held(self, key: Key) -> None:
        if key in self._counters:
            self._counters[key].on_loop = len(self._waiting.get(key, ()))

    def add(self, pop: WaitingPop, seconds: float) -> bool:
        """Hold a request for some time at most; False if too many wait."""
        if not self._enter(pop):
            self._drop_closed()
            if not self._enter(pop):
                return False
        if pop.key not in self._waiting:
            self._waiting[pop.key] = {}
            for topic in self._topics_of(pop.key):
                self._keys.setdefault(topic, {})[pop.key] = None
        self._waiting[pop.key][pop] = None
        self._count_held(pop.key)
        pop.timer = asyncio.get_running_loop().call_later(max(seconds, 0), self._over, pop)
        return True

    def wake_topic(self, topic: str) -> None:
        """Serve the requests that wait for messages of a topic, soon."""
        for key in self._keys.get(topic, ()):
            self.wake(key)

    def wake(self, key: Key) -> None:
        """Serve the requests of one group and topic, soon."""
        if key in self._waiting:
            self._woken[key] = None
            self._schedule()

    def end_key(self, group: str | None = None, topic: str | None = None) -> None:
        """End the requests of a group or of a topic, which is gone."""
        keys = [key for key in self._waiting if group == key[0] or topic == key[1]]
        for key in keys:
            for pop in list(self._waiting.get(key, ())):
                self._over(pop)

    def stop(self) -> None:
        """End all requests; their connections are closed next."""
        for key in list(self._waiting):
            for pop in list(self._waiting[key]):
                self._over(pop)

    def _enter(self, pop: WaitingPop) -> bool:
        if self.of_key(pop.key) >= self._limits.pop_polling_size:
            return False
        size = self._size + pop.size
        if len(self) >= self._limits.max_pop_polling_size or size > WAITING_BYTES_MAX:
            return False
        self._total.on_loop, self._size = self._total.on_loop + 1, size
        return True

    def _drop_closed(self) -> None:
        for key in list(self._waiting):
            for pop in [pop for pop in self._waiting[key] if pop.connection.closed]:
                self._remove(pop)

    def _over(self, pop: WaitingPop) -> None:
        if self._remove(pop) and not pop.connection.closed:
            pop.end()

    def _remove(self, pop: WaitingPop) -> bool:
        waiting = self._waiting.get(pop.key)
        if waiting is None or pop not in waiting:
            return False
        del waiting[pop]
        if pop.timer is not None:
            pop.timer.cancel()
        self._total.on_loop, self._size = self._total.on_loop - 1, self._size - pop.size
        if not waiting:
            del self._waiting[pop.key]
            for topic in self._topics_of(pop.key):
                del self._keys[topic][pop.key]
                if not self._keys[topic]:
                    del self._keys[topic]
        self._count_held(pop.key)
        return True

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._serve_woken)

    def _serve_woken(self) -> None:
        self._scheduled = False
        left = ROUND
        while self._woken and left > 0:
            key, _ = self._woken.popitem(last=False)
            left -= self._serve_key(key, left)
        if self._woken:
            self._schedule()

    def _serve_key(self, key: Key, most: int) -> int:
        """Serve requests until one for all queues finds nothing; returns how many were tried."""
        tried = 0
        for pop in list(self._waiting.get(key, ())):
            if tried == most:
                self._woken[key] = None
                break
            tried += 1
            if pop.connection.closed or pop.serve():
                self._remove(pop)
            elif pop.queue_id < 0:
                break
        return tried
