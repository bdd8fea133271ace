"""Refusals of the io_uring backend, and its error on a kernel without io_uring."""

import subprocess
import sys
from pathlib import Path

import pytest

from congreve.io_backends.errors import BackendError, SegmentSizeError
from congreve.io_backends.probe import uring_refusal

from .segments import SIZE, uring


def test_segments_that_are_not_a_multiple_of_the_block_size_are_refused(
    backend: "uring.UringBackend", folder: Path
) -> None:
    with pytest.raises(BackendError, match="multiple of 4096"):
        backend.create(str(folder / "a"), 0, SIZE + 512)
    (folder / "b").write_bytes(b"short")
    with pytest.raises(SegmentSizeError):
        backend.open(str(folder / "b"), 0, SIZE, 0)
    with pytest.raises(BackendError, match="no such"):
        backend.create(str(folder / "nowhere" / "a"), 0, SIZE)
    assert [path.name for path in folder.iterdir()] == ["b"]


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(BackendError, match="in flight"):
        uring.UringBackend(depth=0)
    with pytest.raises(BackendError, match="window"):
        uring.UringBackend(window=4096)


def test_the_probe_gives_the_reason_and_leaves_no_file(folder: Path) -> None:
    assert uring_refusal(str(folder)) is None
    assert list(folder.iterdir()) == []
    refusal = uring_refusal(str(folder / "nowhere"))
    assert refusal is not None
    assert "nowhere" in refusal


def test_a_kernel_without_io_uring_causes_one_log_line(folder: Path) -> None:
    """The real refusal: the call is answered with EPERM, as Docker does by default."""
    program = f"""
import logging
from congreve.engine.backends import make_backend
from congreve.engine.config import StoreConfig
logging.basicConfig()
config = StoreConfig(root_dir={str(folder)!r}, io_backend="uring")
print(type(make_backend(config)).__name__)
"""
    forbidding = Path(__file__).with_name("forbidding.py")
    run = subprocess.run(
        [sys.executable, forbidding, sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if "no filter" in run.stderr:
        pytest.skip(run.stderr)
    assert run.stdout == "PoolBackend\n", run.stderr
    (line,) = run.stderr.splitlines()
    assert "io_uring: Operation not permitted" in line
    assert list(folder.iterdir()) == []
