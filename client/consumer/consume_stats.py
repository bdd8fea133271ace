"""Statistics of a consumer by topic (RocketMQ: ConsumerStatsManager)."""

import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

import msgspec

from congreve.remoting.messages.admin_bodies import ConsumeStatus

WINDOW_S = 60.0
SNAPSHOT_S = 5.0


class ConsumerMetrics(Protocol):
    """Receives the events of a consumer; metrics.PrometheusConsumerMetrics implements it.

    (RocketMQ: ConsumerStatsManager.)
    """

    def pulled(self, topic: str, messages: int, seconds: float) -> None:
        """A pull of a topic was answered after `seconds`."""

    def consumed(self, topic: str, succeeded: int, failed: int, seconds: float) -> None:
        """Listeners worked for `seconds` on messages of a topic."""


class Totals(msgspec.Struct):
    """Counts and seconds since the consumer was started."""

    pulls: int = 0
    pull_s: float = 0.0
    pulled: int = 0
    succeeded: int = 0
    failed: int = 0
    consume_s: float = 0.0


class TopicStats:
    """Totals of one topic and their growth in the last minute. `clock` returns seconds.

    (RocketMQ: ConsumeStatus.)
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.totals = Totals()
        self._clock = clock
        self._snapshots = deque([(clock(), Totals())])

    def note(self) -> None:
        """Take a snapshot of the totals if the last one is old enough."""
        now = self._clock()
        if now - self._snapshots[-1][0] >= SNAPSHOT_S:
            self._snapshots.append((now, msgspec.structs.replace(self.totals)))
            while now - self._snapshots[0][0] > WINDOW_S and len(self._snapshots) > 1:
                self._snapshots.popleft()

    def status(self) -> ConsumeStatus:
        """Averages in milliseconds and rates per second, as mqadmin shows them (RocketMQ:
        ConsumeStatus)."""
        then, before = self._snapshots[0]
        now, elapsed = self.totals, max(self._clock() - then, 1e-3)
        pulls, pulled = now.pulls - before.pulls, now.pulled - before.pulled
        succeeded, failed = now.succeeded - before.succeeded, now.failed - before.failed
        return ConsumeStatus(
            pull_rt=1000 * (now.pull_s - before.pull_s) / max(pulls, 1),
            pull_tps=pulled / elapsed,
            consume_rt=1000 * (now.consume_s - before.consume_s) / max(succeeded + failed, 1),
            consume_ok_tps=succeeded / elapsed,
            consume_failed_tps=failed / elapsed,
            consume_failed_msgs=now.failed,
        )


class ConsumeStats:
    """Statistics of all topics; each event is passed on to `metrics`.

    (RocketMQ: ConsumerStatsManager.)
    """

    def __init__(self, metrics: ConsumerMetrics | None = None) -> None:
        self.topics: dict[str, TopicStats] = {}
        self._metrics = metrics

    def pulled(self, topic: str, messages: int, seconds: float) -> None:
        """Count an answered pull."""
        stats = self._of(topic)
        totals = stats.totals
        totals.pulls += 1
        totals.pulled += messages
        totals.pull_s += seconds
        stats.note()
        if self._metrics is not None:
            self._metrics.pulled(topic, messages, seconds)

    def consumed(self, topic: str, succeeded: int, failed: int, seconds: float) -> None:
        """Count consumed messages, which were pulled from `topic`."""
        totals = self._of(topic).totals
        totals.succeeded += succeeded
        totals.failed += failed
        totals.consume_s += seconds
        if self._metrics is not None:
            self._metrics.consumed(topic, succeeded, failed, seconds)

    def status(self, topic: str) -> ConsumeStatus:
        """The statistics of a topic."""
        return self._of(topic).status()

    def _of(self, topic: str) -> TopicStats:
        stats = self.topics.get(topic)
        if stats is None:
            stats = self.topics[topic] = TopicStats()
        return stats
