"""The fault backend injects the configured faults, and no others."""

import errno
from pathlib import Path

import pytest

from congreve.io_backends.backend import Segment
from congreve.io_backends.errors import BackendError
from congreve.io_backends.fault.fault import FaultBackend
from congreve.io_backends.fault.plan import Fault, FaultPlan, Group
from congreve.io_backends.pool import PoolBackend

SIZE = 64 << 10
WAIT_S = 20.0


def started(folder: Path, plan: FaultPlan) -> tuple[FaultBackend, Segment]:
    backend = FaultBackend(PoolBackend(commit_interval_ms=60_000, commit_thorough_ms=60_000), plan)
    segment = backend.create(str(folder / "a"), 0, SIZE)
    backend.attach(segment)
    backend.start(0)
    return backend, segment


def test_without_faults_the_decorator_behaves_like_its_backend(tmp_path: Path) -> None:
    backend, segment = started(tmp_path, FaultPlan())
    segment.append(b"abc")
    assert backend.wait_durable(3, WAIT_S)
    assert Path(segment.path).read_bytes()[:4] == b"abc\0"
    backend.stop()
    assert backend.inner.durable_offset == 3


def test_groups_are_recorded_with_their_barriers(tmp_path: Path) -> None:
    backend, segment = started(tmp_path, FaultPlan(record=True))
    for data in (b"one", b"two"):
        segment.append(data)
        assert backend.wait_durable(segment.written, WAIT_S)
    assert backend.recorded == [Group(0, b"one"), Group(3, b"two")]
    backend.stop()


def test_a_lying_disk_keeps_no_byte(tmp_path: Path) -> None:
    backend, segment = started(tmp_path, FaultPlan(groups={0: Fault(lost=True)}))
    segment.append(b"gone")
    assert backend.wait_durable(4, WAIT_S)
    assert Path(segment.path).read_bytes()[:4] == bytes(4)
    backend.stop()


def test_a_failed_group_is_the_last_one(tmp_path: Path) -> None:
    backend, segment = started(tmp_path, FaultPlan(groups={1: Fault(error=errno.EIO)}))
    segment.append(b"one")
    assert backend.wait_durable(3, WAIT_S)
    segment.append(b"two")
    assert not backend.wait_durable(6, WAIT_S)
    assert (backend.failure_errno, backend.durable_offset) == (errno.EIO, 3)
    assert not backend.wait_durable(5, 0.05)
    assert backend.groups == 2
    backend.stop()


def test_a_create_with_the_given_number_fails(tmp_path: Path) -> None:
    backend = FaultBackend(PoolBackend(), FaultPlan(creates={1: errno.ENOSPC}))
    backend.create(str(tmp_path / "a"), 0, SIZE)
    with pytest.raises(BackendError, match="No space left"):
        backend.create(str(tmp_path / "b"), 0, SIZE)
    backend.create(str(tmp_path / "b"), 0, SIZE)
    assert backend.creates == 3
