"""Avoids brokers that were slow or failed for a while (RocketMQ: MQFaultStrategy,
LatencyFaultToleranceImpl)."""

import time
from collections.abc import Callable, Sequence

import msgspec

from congreve.client.message import MessageQueue

LATENCY_LEVELS_S = (0.05, 0.1, 0.55, 1.0, 2.0, 3.0, 15.0)
"""Latency levels in seconds; a broker is avoided for the time at the same index below."""
UNAVAILABLE_S = (0.0, 0.0, 30.0, 60.0, 120.0, 180.0, 600.0)
FAILURE_LATENCY_S = 30.0
"""Latency in seconds that a failure counts as."""


class _Fault(msgspec.Struct):
    latency_s: float
    available_at: float


class LatencyFaults:
    """Observed latencies and failures of each broker (RocketMQ: LatencyFaultToleranceImpl).
    `clock` returns seconds."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._faults: dict[str, _Fault] = {}
        self._worse_turn = 0

    def answered(self, broker_name: str, latency_s: float) -> None:
        """Record the latency of a broker's answer."""
        unavailable_s = 0.0
        for level, seconds in zip(LATENCY_LEVELS_S, UNAVAILABLE_S, strict=True):
            if latency_s >= level:
                unavailable_s = seconds
        self._faults[broker_name] = _Fault(latency_s, self._clock() + unavailable_s)

    def failed(self, broker_name: str) -> None:
        """Record that a broker did not answer, or answered with an error."""
        self.answered(broker_name, FAILURE_LATENCY_S)

    def is_available(self, broker_name: str) -> bool:
        """Whether messages should be sent to the broker now."""
        fault = self._faults.get(broker_name)
        return fault is None or fault.available_at <= self._clock()

    def choose(self, queues: Sequence[MessageQueue], turn: int) -> MessageQueue:
        """The next queue of an available broker; when there is none, one of the less faulty half
        of the brokers."""
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
