"""A folder where io_uring works, and a backend."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from congreve.io_backends.probe import uring_refusal


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    refusal = uring_refusal(str(tmp_path))
    if refusal is not None:
        pytest.skip(refusal)
    return tmp_path


@pytest.fixture
def backend(folder: Path) -> Iterator[Any]:
    from congreve.io_backends.uring import uring  # not built everywhere

    backend = uring.UringBackend(window=1 << 20)
    yield backend
    backend.stop()
