"""Waiting pulls: their cost, which of them a message wakes, and how soon."""

from __future__ import annotations

import select
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from harness.wire import PULL_MESSAGE, SEND_MESSAGE_V2, Wire, pull_fields, send_fields

SUSPEND, SUBSCRIPTION = 2, 4
HOLD_MS = 600_000
CONNECTIONS = 500
WAKE_LIMIT_S = 5.0


class WokenWronglyError(Exception):
    """A pull of another queue was answered, or one of the queue was not."""


class HeldPulls:
    """Holds `pulls` pulls at the ends of queues 0 to `queues` - 1 of a new topic, over
    CONNECTIONS connections."""

    def __init__(self, address: str, topic: str, queues: int, pulls: int) -> None:
        self._topic = topic
        self._stack = ExitStack()
        self._queue_of: dict[tuple[int, int], int] = {}
        wires = [self._stack.enter_context(Wire(address)) for _ in range(min(CONNECTIONS, pulls))]
        self._wires = {wire.fileno(): wire for wire in wires}
        self._poll = self._stack.enter_context(select.epoll())
        for descriptor in self._wires:
            # Edge-triggered: each answer is timed before any of them is read.
            self._poll.register(descriptor, select.EPOLLIN | select.EPOLLET)
        for number in range(pulls):
            # The pulls of one queue wait on different connections.
            turn, queue = divmod(number, queues)
            self._hold(wires[(number + turn) % len(wires)], queue, 0)

    def __enter__(self) -> HeldPulls:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def wake(self, sender: Wire, queue: int) -> list[float]:
        """Send one message to the queue; returns the seconds until each answer of its pulls."""
        waiting = {place[0]: place for place, of in self._queue_of.items() if of == queue}
        delays: dict[int, float] = {}
        begin = time.perf_counter()
        answer = sender.call(SEND_MESSAGE_V2, send_fields(self._topic, queue, {}), b"wake up")
        while len(delays) < len(waiting):
            found = self._readable()
            arrived = time.perf_counter() - begin
            for descriptor in found:
                delays.setdefault(descriptor, arrived)
        offset = int(answer.fields["queueOffset"]) + 1
        for descriptor in delays:
            wire = self._wires[descriptor]
            place = descriptor, wire.receive().opaque
            if place != waiting.get(descriptor):
                raise WokenWronglyError(f"a pull of queue {self._queue_of[place]} was woken")
            del self._queue_of[place]
            self._hold(wire, queue, offset)
        return list(delays.values())

    def _hold(self, wire: Wire, queue: int, offset: int) -> None:
        fields = pull_fields(self._topic, queue, offset, 32)
        fields |= {"sysFlag": str(SUSPEND | SUBSCRIPTION), "suspendTimeoutMillis": str(HOLD_MS)}
        self._queue_of[wire.fileno(), wire.send(PULL_MESSAGE, fields)] = queue

    def _readable(self) -> list[int]:
        found = [descriptor for descriptor, _ in self._poll.poll(WAKE_LIMIT_S)]
        if not found:
            raise WokenWronglyError(f"a pull was not woken within {WAKE_LIMIT_S:g} s")
        return found


@contextmanager
def idle_connections(address: str, count: int) -> Iterator[None]:
    """That many idle connections."""
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(Wire(address))
        yield
