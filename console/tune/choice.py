"""The backend that the measurements recommend, and whether the rounds agree on it."""

from __future__ import annotations

from congreve.console.tune.rounds import ALONE, ASYNC_STEPS, RAW, TOGETHER, Rounds, Step
from congreve.engine.state.tuned import ASYNC, SYNC, Choice, Machine, Tuned
from congreve.io_backends.backends import BACKENDS
from congreve.io_backends.measure import Sample

CLOSE = 1.10
"""Bandwidth decides between backends whose latency is within this factor of the lowest."""
SURVIVES_KILL = next(name for name, kind in BACKENDS.items() if kind.survives_kill)
BUSY = 3.0
"""Rounds of the same writes differ by more than this factor only beside other work."""


def recommend(rounds: Rounds, machine: Machine | None = None) -> Tuned:
    """The backend with the lowest latency of single groups; bandwidth decides between close ones.

    A backend's best round counts, because other work on the machine only makes a round slower. The
    recommended policy is always SYNC_FLUSH;
    with ASYNC_FLUSH, the backend is always mmap, because a killed process loses nothing there.
    """
    alone, together = _by_backend(rounds, ALONE), _by_backend(rounds, TOGETHER)
    p50 = {name: min(s.p50_us for s in samples) for name, samples in alone.items()}
    rate = {name: max(s.bytes_per_s for s in samples) for name, samples in together.items()}
    best = _best(p50, rate)
    others = [
        f"{name} {p50[name]:.0f} us and {rate[name] / 1e6:.0f} MB/s"
        for name in sorted(set(p50) - {best})
    ]
    reason = (
        f"{best} writes 4 KiB to disk in {p50[best]:.0f} us (p50, one group in flight) and "
        f"{rate[best] / 1e6:.0f} MB/s in groups of 64 KiB, four in flight"
    )
    return Tuned(
        io_backend=best,
        flush_disk_type=SYNC,
        reason="; ".join([reason, *others]),
        async_flush=Choice(io_backend=SURVIVES_KILL, reason=_async_reason(rounds)),
        rounds=len(alone[best]),
        machine=machine,
        measured=rounds.summary(),
    )


def is_busy(tuned: Tuned) -> bool:
    """Whether the disk alone was BUSY times as slow in one round as in another."""
    ranges = [step.p50_us_range for step in tuned.measured if step.backend == RAW]
    return any(slowest > BUSY * fastest for fastest, slowest in ranges)


def dissenting(rounds: Rounds, chosen: str) -> list[str]:
    """For each round that alone would recommend another backend: that backend."""
    alone, together = _by_backend(rounds, ALONE), _by_backend(rounds, TOGETHER)
    winners = [
        _best(
            {name: samples[number].p50_us for name, samples in alone.items()},
            {name: samples[number].bytes_per_s for name, samples in together.items()},
        )
        for number in range(len(alone[chosen]))
    ]
    return [winner for winner in winners if winner != chosen]


def _best(p50_us: dict[str, float], bytes_per_s: dict[str, float]) -> str:
    close = [name for name in p50_us if p50_us[name] <= CLOSE * min(p50_us.values())]
    return max(close, key=lambda name: bytes_per_s[name])


def _by_backend(rounds: Rounds, step: tuple[int, int]) -> dict[str, list[Sample]]:
    """The samples of each backend with SYNC_FLUSH at the step (bytes of a group, in flight)."""
    return {
        found.backend: rounds.samples(found)
        for found in rounds
        if found.policy == SYNC
        and found.backend != RAW
        and (found.group_bytes, found.in_flight) == step
    }


def _async_reason(rounds: Rounds) -> str:
    """The reason for mapped files, with the measured bandwidths."""
    rates = {
        step.backend: max(sample.bytes_per_s for sample in rounds.samples(step))
        for step in rounds
        if step == Step(step.backend, ASYNC, ASYNC_STEPS[-1], 0)
    }
    measured = ", ".join(f"{name} {rate / 1e6:.0f} MB/s" for name, rate in sorted(rates.items()))
    others = [name for name, kind in BACKENDS.items() if not kind.survives_kill]
    return (
        "a killed process loses nothing of a mapped file; "
        f"{' and '.join(others)} lose acknowledged messages that are still in their buffers"
        + (f" ({measured})" if measured else "")
    )
