"""Brokers that were slow or failed are passed over for a while (RocketMQ: MQFaultStrategy,
LatencyFaultToleranceImpl)."""

import time
from collections.abc import Callable, Sequence

import msgspec

from congreve.client.message import MessageQueue

LATENCY_LEVELS_S = (0.05, 0.1, 0.55, 1.0, 2.0, 3.0, 15.0)
"""What an answer may take; from each level on, a broker is passed over for as long as below."""
UNAVAILABLE_S = (0.0, 0.0, 30.0, 60.0, 120.0, 180.0, 600.0)
FAILURE_LATENCY_S = 30.0
"""A failure counts as an answer that took so long."""


class _Fault(msgspec.Struct):
    latency_s: float
    available_at: float


class LatencyFaults:
    """What was seen of each broker. `clock` gives seconds."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._faults: dict[str, _Fault] = {}
        self._worse_turn = 0

    def answered(self, broker_name: str, latency_s: float) -> None:
        """A broker took so long for an answer."""
        unavailable_s = 0.0
        for level, seconds in zip(LATENCY_LEVELS_S, UNAVAILABLE_S, strict=True):
            if latency_s >= level:
                unavailable_s = seconds
        self._faults[broker_name] = _Fault(latency_s, self._clock() + unavailable_s)

    def failed(self, broker_name: str) -> None:
        """A broker did not answer, or refused."""
        self.answered(broker_name, FAILURE_LATENCY_S)

    def is_available(self, broker_name: str) -> bool:
        """Whether messages should go there now."""
        fault = self._faults.get(broker_name)
        return fault is None or fault.available_at <= self._clock()

    def choose(self, queues: Sequence[MessageQueue], turn: int) -> MessageQueue:
        """The queue in turn of an available broker; where none is, brokers of the better half."""
        for number in range(len(queues)):
            queue = queues[(turn + number) % len(queues)]
            if self.is_available(queue.broker_name):
                return queue
        best = self._least_bad(queues)
        of_best = [queue for queue in queues if queue.broker_name == best]
        return of_best[turn % len(of_best)]

    def _least_bad(self, queues: Sequence[MessageQueue]) -> str:
        now = self._clock()
        ranked = sorted(
            {queue.broker_name for queue in queues},
            key=lambda name: (
                self._faults[name].available_at > now,
                self._faults[name].latency_s,
                self._faults[name].available_at,
            ),
        )
        self._worse_turn += 1
        return ranked[self._worse_turn % max(1, len(ranked) // 2)]
