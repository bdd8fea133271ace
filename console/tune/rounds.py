"""Measurements of all backends in turns, in several rounds."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import NamedTuple

from congreve.engine.state.tuned import ASYNC, SYNC, MeasuredStep
from congreve.io_backends import measure
from congreve.io_backends.backend import Backend
from congreve.io_backends.backends import BACKENDS, Options
from congreve.io_backends.errors import BackendError
from congreve.io_backends.measure import BackendMeasure, Sample
from congreve.io_backends.probe import PROBE_SIZE

KIB = 1024
RAW = "raw"
"""Plain O_DIRECT writes with RWF_DSYNC: the upper limit of every backend."""
ALONE, TOGETHER = (4 * KIB, 1), (64 * KIB, 4)
SYNC_STEPS = [ALONE, (4 * KIB, 4), (16 * KIB, 1), (64 * KIB, 1), TOGETHER, (256 * KIB, 4)]
"""With SYNC_FLUSH: (bytes of a group, groups in flight)."""
ASYNC_STEPS = [4 * KIB, 64 * KIB]
"""With ASYNC_FLUSH: bytes of a group."""
Backends = Mapping[str, Callable[[], Backend]]


@dataclass(frozen=True, slots=True)
class Step:
    """What is measured: groups of some bytes, and how many of them are in flight."""

    backend: str
    policy: str
    group_bytes: int
    in_flight: int  # 0 with ASYNC_FLUSH


class Rounds:
    """The samples of each step, one for each round; in the order in which they were measured."""

    def __init__(self) -> None:
        self._samples: dict[Step, list[Sample]] = {}

    def add(self, step: Step, sample: Sample) -> None:
        """Add a round's sample."""
        self._samples.setdefault(step, []).append(sample)

    def __iter__(self) -> Iterator[Step]:
        return iter(self._samples)

    def samples(self, step: Step) -> list[Sample]:
        """The step's samples, by round. Raises KeyError if it was not measured."""
        return self._samples[step]

    def summary(self) -> tuple[MeasuredStep, ...]:
        """Each step's medians with the lowest and the highest round."""
        return tuple(_summary(step, samples) for step, samples in self._samples.items())


def _summary(step: Step, samples: list[Sample]) -> MeasuredStep:
    p50 = [sample.p50_us for sample in samples]
    rates = [sample.bytes_per_s for sample in samples]
    return MeasuredStep(
        backend=step.backend,
        policy=step.policy,
        group_bytes=step.group_bytes,
        in_flight=step.in_flight,
        p50_us=median(p50),
        p50_us_range=(min(p50), max(p50)),
        p99_us=median(sample.p99_us for sample in samples),
        bytes_per_s=median(rates),
        bytes_per_s_range=(min(rates), max(rates)),
    )


def bytes_needed(backends: int = len(BACKENDS)) -> int:
    """The most bytes that a round has on disk."""
    return (backends * (len(SYNC_STEPS) + len(ASYNC_STEPS)) + 1) * measure.MEASURE_BYTES


def candidates(folder: str) -> tuple[dict[str, Callable[[], Backend]], dict[str, str]]:
    """The backends that work in `folder`, and the reason why each of the others does not."""
    refused = {
        name: reason
        for name, kind in BACKENDS.items()
        if (reason := kind.refusal(folder, PROBE_SIZE)) is not None
    }
    return {
        name: partial(kind.make, Options())
        for name, kind in BACKENDS.items()
        if name not in refused
    }, refused


def measurements(backends: Backends, rounds: int) -> int:
    """How many samples measured() takes."""
    return rounds * (len(SYNC_STEPS) * (1 + len(backends)) + len(ASYNC_STEPS) * len(backends))


def measured(
    folder: str, backends: Backends, *, rounds: int, seconds: float
) -> Iterator[tuple[Step, Sample]]:
    """Measure each step with one backend after the other, and all steps again in each round.

    So a neighbour that is busy for a second or a round disturbs all backends alike. Each round
    begins with another backend. A disk that refuses raw writes is measured without them. Raises
    BackendError.
    """
    names = list(backends)
    for number in range(rounds):
        turn = number % len(names)
        order = names[turn:] + names[:turn]
        with ExitStack() as stack:
            open_backends = {
                name: stack.enter_context(_measuring(backends[name], folder)) for name in order
            }
            for group, depth in SYNC_STEPS:
                raw = _raw(folder, group, depth, seconds)
                if raw is not None:
                    yield Step(RAW, SYNC, group, depth), raw
                for name, one in open_backends.items():
                    yield Step(name, SYNC, group, depth), one.sync_groups(group, depth, seconds)
            for group in ASYNC_STEPS:
                for name, one in open_backends.items():
                    yield Step(name, ASYNC, group, 0), one.async_groups(group, seconds)


def _measuring(make: Callable[[], Backend], folder: str) -> BackendMeasure:
    inside = tempfile.mkdtemp(dir=folder)
    return BackendMeasure(make, inside, len(SYNC_STEPS) + len(ASYNC_STEPS))


def _raw(folder: str, group: int, depth: int, seconds: float) -> Sample | None:
    try:
        return measure.raw_writes(folder, group, depth, seconds)
    except BackendError:
        return None


class Places(NamedTuple):
    """MB/s that the disk alone makes durable, one write at a time."""

    random_pages: float
    pages: float
    groups: float


def places(folder: str, seconds: float) -> Places:
    """Pages of 4 KiB at random places and in order, and groups of 256 KiB in order.

    Raises BackendError if the disk refuses.
    """
    chance = random.Random(1)
    return Places(
        measure.raw_writes(folder, 4 * KIB, 1, seconds, chance).bytes_per_s / 1e6,
        measure.raw_writes(folder, 4 * KIB, 1, seconds).bytes_per_s / 1e6,
        measure.raw_writes(folder, 256 * KIB, 1, seconds).bytes_per_s / 1e6,
    )
