"""One embedded broker for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import congreve


@pytest.fixture
def node(tmp_path: Path) -> Iterator[congreve.Node]:
    with congreve.serve(tmp_path / "data", flushDiskType="ASYNC_FLUSH") as running:
        yield running
