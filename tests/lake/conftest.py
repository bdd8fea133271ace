"""Tables need the extra `lake`."""

import pytest

pytest.importorskip("pyiceberg")
pytest.importorskip("duckdb")
