"""Whether io_uring works on this kernel, in this container and on this file system."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

from congreve.io_backends.errors import BackendError

if TYPE_CHECKING:
    from congreve.io_backends.backend import Backend, Segment

PROBE_SIZE = 64 << 10
"""Bytes of the file that is written."""
_WAIT_S = 10.0


def uring_refusal(folder: str, segment_size: int = PROBE_SIZE) -> str | None:
    """Why io_uring cannot write segments of this size in `folder`; None if it can.

    It writes a block to a temporary file there. Containers often forbid io_uring (Docker's default
    seccomp profile does), and not every file system supports O_DIRECT.
    """
    try:
        from congreve.io_backends.uring.uring import UringBackend
    except ImportError:
        return "this build has no io_uring: liburing was missing when it was compiled"
    try:
        backend = UringBackend(window=1 << 20)
        backend.check_size("a segment", segment_size)
        return _refusal(backend, folder)
    except BackendError as error:
        return str(error)


def _refusal(backend: Backend, folder: str) -> str | None:
    try:
        with tempfile.TemporaryDirectory(prefix=".probe-", dir=folder) as inside:
            segment = backend.create(os.path.join(inside, "segment"), 0, PROBE_SIZE)
            backend.attach(segment)
            backend.start(0)
            try:
                return _write_one_byte(backend, segment)
            finally:
                backend.stop()
    except OSError as error:
        return f"cannot write in {folder}: {error.strerror}"


def _write_one_byte(backend: Backend, segment: Segment) -> str | None:
    if segment.append(b"1") and backend.wait_durable(1, _WAIT_S):
        return None
    if backend.failure_errno:
        return f"a write failed: {os.strerror(backend.failure_errno)}"
    return f"a write did not complete within {_WAIT_S:g} s"
