"""The result of a case, and quantiles of measured values."""

from __future__ import annotations

import msgspec

from congreve.console.loadgen import generator
from congreve.console.loadgen.generator import LoadResult

from .process import Memory


class CaseResult(msgspec.Struct, omit_defaults=True, kw_only=True, rename="camel"):
    """One case of one broker in one round; field names are those of OpenMessaging Benchmark.

    Rates are messages per second, latencies milliseconds of whole requests, `broker_cpu_us` is the
    broker's user and system time per message, `generator_cpu_us` the generator's.
    """

    workload: str
    driver: str
    round: int
    message_size: int = 0
    topics: int = 0
    partitions_per_topic: int = 0
    messages: int = 0
    publish_rate: float = 0.0
    consume_rate: float = 0.0
    latency: dict[str, float] = {}
    quantiles: dict[str, float] = {}
    errors: int = 0
    broker_cpu_us: float = 0.0
    generator_cpu_us: float = 0.0
    memory: Memory | None = None
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """The publish or consume rate, whichever the case has."""
        return self.publish_rate or self.consume_rate


def early(lateness_ms: list[float]) -> int:
    """The number of messages delivered before their time."""
    return sum(ms < 0 for ms in lateness_ms)


def quantile(values: list[float], level: float) -> float:
    """The value below which that share of the values lies."""
    return sorted(values)[min(int(len(values) * level), len(values) - 1)]


def quantiles(found: LoadResult) -> dict[str, float]:
    """Percentile to milliseconds at HdrHistogram's steps, for plots."""
    steps = found.histogram().get_percentile_iterator(ticks_per_half_distance=5)
    return {
        f"{step.percentile_level_iterated_to:.4f}": step.value_iterated_to
        / generator.MILLISECOND_NS
        for step in steps
    }
