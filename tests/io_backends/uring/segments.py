"""Segments of an io_uring backend, filled in random steps."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from congreve.io_backends.backend import Segment

uring = pytest.importorskip(
    "congreve.io_backends.uring.uring", reason="built without liburing: io_uring is not tested"
)
BLOCK = 4096
SIZE = 1 << 20
WAIT_S = 20.0


def added(backend: "uring.UringBackend", folder: Path, base: int = 0, size: int = SIZE) -> Segment:
    segment: Segment = backend.create(str(folder / f"{base:020d}"), base, size)
    segment.prewrite()
    backend.attach(segment)
    return segment


def noise(seed: int, length: int) -> bytes:
    return random.Random(seed).randbytes(length)


def growing(segment: Segment, data: bytes, dice: random.Random, steps: list[int]) -> Iterator[None]:
    """Append `data` in random steps until the segment is full; yields after each."""
    while segment.written < segment.size:
        step = min(dice.choice(steps), segment.size - segment.written)
        assert segment.append(data[segment.written : segment.written + step])
        yield
