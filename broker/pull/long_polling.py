"""Long polling: pulls that wait for messages (RocketMQ: PullRequestHoldService)."""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Generator
from itertools import count
from typing import TypeVar

from congreve.broker.pull.slow_readers import SlowReaders
from congreve.broker.pull.suspended_pull import SuspendedPull
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.remoting.loop.wake_up_timer import WakeUpTimer
from congreve.remoting.transport.connection import Connection

K = TypeVar("K")

HELD_MAX = 100_000  # pullThreadPoolQueueCapacity
HELD_BYTES_MAX = 64 << 20  # of their requests
_STALE_MAX = 64  # answered pulls that the heap may have, beyond twice the live ones
_AT_ONCE = 64  # pulls that one turn of the loop checks


class LongPolling:
    """Waiting pulls by queue; one event loop owns it (RocketMQ: PullRequestHoldService).

    `watch(queue)` asks for one call of arrived() when the queue gets its next entry, and returns
    the queue's end; `hides(queue)` returns whether readers do not see all of it, and shown() is
    called when they see more. `wake(held)` answers the pull if its queue has messages for it, and
    returns whether it did; `resume(held)` executes the pull again and answers it with any result;
    `dismiss(held)` answers that the broker stops. A peer with too many unread bytes gets its
    answers as it reads.
    """

    def __init__(
        self,
        *,
        watch: Callable[[ConsumeQueue], int],
        hides: Callable[[ConsumeQueue], bool],
        wake: Callable[[SuspendedPull], bool],
        resume: Callable[[SuspendedPull], None],
        dismiss: Callable[[SuspendedPull], None],
    ) -> None:
        self._watch = watch
        self._hides = hides
        self._wake = wake
        self._readers = SlowReaders(resume)
        self._dismiss = dismiss
        self._queues: dict[ConsumeQueue, set[SuspendedPull]] = {}
        self._connections: dict[Connection, set[SuspendedPull]] = {}
        self._by_deadline: list[tuple[float, int, SuspendedPull]] = []
        self._order = count()
        self._live = 0
        self._bytes = 0
        self._stopped = False
        self._arrived: set[ConsumeQueue] = set()
        self._hidden: set[ConsumeQueue] = set()
        self._to_check: deque[SuspendedPull] = deque()
        self._timer = WakeUpTimer(self._expire)

    def __len__(self) -> int:
        return self._live

    def suspend(self, held: SuspendedPull, timeout_s: float, end: int) -> bool:
        """Hold the pull, which saw its queue up to `end`.

        Returns False when HELD_MAX pulls wait, or HELD_BYTES_MAX of requests, or the broker stops:
        answer it now.
        """
        size = self._bytes + len(held.frame)
        readers = self._readers
        if self._live + readers.count >= HELD_MAX or size + readers.size > HELD_BYTES_MAX:
            return False
        if self._stopped:
            return False
        loop = asyncio.get_running_loop()
        held.deadline = loop.time() + timeout_s
        held.polls = True
        self._queues.setdefault(held.queue, set()).add(held)
        self._connections.setdefault(held.connection, set()).add(held)
        heapq.heappush(self._by_deadline, (held.deadline, next(self._order), held))
        self._live += 1
        self._bytes = size
        if self._watch(held.queue) != end:
            self.arrived(held.queue)
        self._set_timer(loop)
        return True

    def arrived(self, queue: ConsumeQueue) -> None:
        """Check the pulls of this queue, which has a new entry, in the loop's next turn."""
        if queue not in self._queues:
            return
        if not self._arrived:
            asyncio.get_running_loop().call_soon(self._look)
        self._arrived.add(queue)

    def shown(self) -> None:
        """Check the pulls of queues with entries that readers did not see before."""
        hidden, self._hidden = self._hidden, set()
        for queue in hidden:
            self.arrived(queue)

    def closing_steps(self, connection: Connection) -> Generator[None, None, None]:
        """Drop the pulls of a closed connection."""
        for held in list(self._connections.get(connection, ())):
            self._take_out(held)
            yield

    def waiting(self) -> list[SuspendedPull]:
        """The pulls without an answer, those of peers that do not read included."""
        waiting = [held for each in self._connections.values() for held in each]
        return waiting + self._readers.waiting()

    def withdraw(self, held: SuspendedPull) -> bool:
        """Take a pull out, for another answer; False when it has been answered."""
        if not held.done:
            self._take_out(held)
            return True
        return self._readers.withdraw(held)

    def stop(self) -> None:
        """Dismiss all waiting pulls, and accept no more; their connections are closed next.

        A Java client without an answer waits 30 s before it pulls again, even when its connection
        is closed.
        """
        self._stopped = True
        for waiting in list(self._connections.values()):
            for held in list(waiting):
                self._take_out(held)
                if held.connection.is_writable:
                    self._dismiss(held)
        self._readers.stop()
        self._by_deadline.clear()
        self._timer.stop()

    def _look(self) -> None:
        for queue in self._arrived:
            if queue in self._queues:
                self._watch(queue)  # first: an entry that comes later is another arrival
                if self._hides(queue):
                    self._hidden.add(queue)
                self._to_check.extend(self._queues[queue])
        self._arrived = set()
        for _ in range(min(_AT_ONCE, len(self._to_check))):
            held = self._to_check.popleft()
            if held.done:
                continue
            if not held.connection.is_writable:
                self._finish(held)
            elif self._wake(held):
                self._take_out(held)
        if self._to_check:
            asyncio.get_running_loop().call_soon(self._look)

    def _finish(self, held: SuspendedPull) -> None:
        self._take_out(held)
        self._readers.answer(held)

    def _take_out(self, held: SuspendedPull) -> None:
        if held.done:
            return
        held.done = True
        held.place = None
        self._live -= 1
        self._bytes -= len(held.frame)
        _discard(self._queues, held.queue, held)
        _discard(self._connections, held.connection, held)
        self._compact()

    def _compact(self) -> None:
        # Pulls that were answered early stay in the heap until their deadline; bound their number.
        if len(self._by_deadline) > _STALE_MAX + 2 * self._live:
            self._by_deadline = [entry for entry in self._by_deadline if not entry[2].done]
            heapq.heapify(self._by_deadline)

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._by_deadline:
            self._timer.set(max(self._by_deadline[0][0] - loop.time(), 0.0))

    def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for _ in range(_AT_ONCE):
            if not self._by_deadline or self._by_deadline[0][0] > now:
                break
            held = heapq.heappop(self._by_deadline)[2]
            if not held.done:
                self._finish(held)
        self._set_timer(loop)


def _discard(table: dict[K, set[SuspendedPull]], key: K, held: SuspendedPull) -> None:
    """Remove the pull from its set, and an empty set from the table."""
    waiting = table[key]
    waiting.discard(held)
    if not waiting:
        del table[key]
