"""The time of sends over all threads that count it."""

from collections.abc import Callable, Iterable
from itertools import accumulate

from congreve.broker.figures.put_times import BOUNDS_US, PutTimes

PUT_TIMES = (
    (1_000, "<=0ms"),
    (10_000, "0~10ms"),
    (50_000, "10~50ms"),
    (100_000, "50~100ms"),
    (200_000, "100~200ms"),
    (500_000, "200~500ms"),
    (1_000_000, "500ms~1s"),
    (2_000_000, "1~2s"),
    (3_000_000, "2~3s"),
    (4_000_000, "3~4s"),
    (5_000_000, "4~5s"),
    (10_000_000, "5~10s"),
    (None, "10s~"),
)
"""The upper ends of RocketMQ's buckets in microseconds, and its names for them."""


class PutLatency:
    """The counts of all `sources()` together, since the start (RocketMQ: StoreStatsService)."""

    def __init__(self, sources: Callable[[], Iterable[PutTimes]]) -> None:
        self._sources = sources

    def counts(self) -> list[int]:
        """Messages in each bucket of BOUNDS_US, and after the last bound."""
        found = [times.counts for times in self._sources()]
        return [sum(bucket) for bucket in zip(*found, strict=True)]

    @property
    def sum_s(self) -> float:
        """The time of all messages together, in seconds."""
        return sum(times.sum_ns for times in self._sources()) / 1e9

    @property
    def max_ms(self) -> int:
        """The longest time, in milliseconds."""
        return max((times.max_ns for times in self._sources()), default=0) // 1_000_000

    def distribution(self) -> list[int]:
        """Messages in each bucket of PUT_TIMES."""
        upto = dict(zip((*BOUNDS_US, None), accumulate(self.counts()), strict=True))
        ends = [upto[bound] for bound, _ in PUT_TIMES]
        return [end - before for before, end in zip([0, *ends], ends, strict=False)]

    def distribution_text(self) -> str:
        """The value of putMessageDistributeTime."""
        pairs = zip(PUT_TIMES, self.distribution(), strict=True)
        return "".join(f"[{name}]:{count} " for (_, name), count in pairs)

    def quantile_ms(self, share: float) -> float:
        """The upper end of the bucket that has this share of all messages, in milliseconds."""
        upto = list(accumulate(self.counts()))
        for bound, count in zip(BOUNDS_US, upto, strict=False):
            if count and count >= share * upto[-1]:
                return bound / 1000
        return float(self.max_ms)
