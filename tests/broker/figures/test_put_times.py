"""Times of sends are counted in the right buckets."""

import time

from congreve.broker.figures.put_latency import PUT_TIMES, PutLatency
from congreve.broker.figures.put_times import BOUNDS_US, COMPILED, PutTimes, requests_of

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


def test_a_slow_chunk_is_noted_with_the_place_of_its_time() -> None:
    times, now = PutTimes(), time.monotonic_ns()
    peer = bytes([10, 0, 0, 7]) + (4711).to_bytes(4, "big")
    noted = {"appended_ns": now - 95 * MS, "durable_ns": now - 30 * MS, "peer": peer}
    times.count(now - 100 * MS, 4, requests_of(310), **noted)
    assert times.take_slow() == []
    times.slow_ns = 200 * MS
    times.count(now - 100 * MS, 4, requests_of(310), **noted)
    assert times.take_slow() == []
    times.slow_ns = 100 * MS
    for _ in range(3):
        times.count(now - 100 * MS, 4, requests_of(310), **noted)
    (chunk,) = times.take_slow()
    assert chunk.requests == {"SEND_MESSAGE_V2": 1}
    assert (chunk.messages, chunk.address, chunk.port) == (4, peer[:4], 4711)
    assert (chunk.queued_ns, chunk.worked_ns, chunk.files_ns) == (0, 5 * MS, 0)
    assert chunk.disk_ns == 65 * MS
    assert chunk.slave_ns >= 30 * MS
    assert chunk.whole_ns >= 100 * MS
    assert chunk.missed == 2
    assert times.take_slow() == []
    assert sum(times.counts) == 5 * 4


def test_many_slow_pulls_do_not_hide_a_slow_send() -> None:
    times, peer = PutTimes(), bytes(8)
    times.slow_ns = 0
    pulls = [int(kind == (11, False)) for kind in COMPILED]
    for requests in (pulls, pulls, pulls, requests_of(310)):
        times.count(time.monotonic_ns(), 0, requests, peer=peer)
    sends, pulled = times.take_slow()
    assert (sends.requests, sends.missed) == ({"SEND_MESSAGE_V2": 1}, 0)
    assert (pulled.requests, pulled.missed) == ({"PULL_MESSAGE": 1}, 2)


def test_the_place_of_a_chunk_that_did_not_wait_is_its_work() -> None:
    times = PutTimes()
    times.slow_ns = 0
    times.count(time.monotonic_ns() - 9 * MS, 1, requests_of(37), peer=bytes(16) + bytes(4))
    (chunk,) = times.take_slow()
    assert chunk.worked_ns >= 9 * MS
    assert chunk.disk_ns == chunk.slave_ns == 0
    assert len(chunk.address) == 16
