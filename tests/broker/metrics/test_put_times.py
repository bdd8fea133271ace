"""Times of sends are counted in the right buckets."""

import time

from congreve.broker.metrics.put_latency import PUT_TIMES, PutLatency
from congreve.broker.metrics.put_times import BOUNDS_US, PutTimes

MS = 1_000_000


def counted(**messages_by_ms: int) -> PutLatency:
    """Counts of sends that came so many milliseconds ago."""
    times = PutTimes()
    for name, messages in messages_by_ms.items():
        times.count(time.monotonic_ns() - int(name.removeprefix("ms")) * MS, messages)
    return PutLatency(lambda: [times, PutTimes()])


def test_the_buckets_of_rocketmq_are_sums_of_ours():
    assert {bound for bound, _ in PUT_TIMES} - {None} <= set(BOUNDS_US)
    latency = counted(ms30=7, ms1500=2, ms20000=1)
    names = dict(zip((name for _, name in PUT_TIMES), latency.distribution(), strict=True))
    assert {name: count for name, count in names.items() if count} == {
        "10~50ms": 7,
        "1~2s": 2,
        "10s~": 1,
    }
    assert "[10~50ms]:7 " in latency.distribution_text()
    assert sum(latency.counts()) == 10


def test_quantiles_are_upper_bounds_of_buckets():
    latency = counted(ms30=98, ms1500=1, ms20000=1)
    assert latency.quantile_ms(0.5) == 50
    assert latency.quantile_ms(0.99) == 2_000
    assert latency.quantile_ms(0.999) == latency.max_ms >= 20_000
    assert latency.sum_s >= 98 * 0.03 + 1.5 + 20
    assert counted().quantile_ms(0.99) == counted().max_ms == 0
