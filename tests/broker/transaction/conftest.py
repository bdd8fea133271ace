"""The transactions of a broker over a real store."""

from pathlib import Path

import pytest
from harness.transaction_bench import (
    TransactionBench,
)


@pytest.fixture
def bench(tmp_path: Path, connection):
    made = TransactionBench(tmp_path / "store", connection)
    yield made
    made.close()
