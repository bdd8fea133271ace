"""Processors without a network."""

import pytest

from ..send_and_pull import Bench


@pytest.fixture
def bench(tmp_path, connection):
    made = Bench(str(tmp_path / "store"), connection)
    yield made
    made.store.close()
