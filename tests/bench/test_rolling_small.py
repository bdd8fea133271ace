"""The roll over a group of three, a pair and a broker, beside Java and Python clients."""

import json
from pathlib import Path

import pytest

from .programs import run_benchmark


@pytest.mark.slow
@pytest.mark.interop
def test_a_small_roll_has_no_failed_send_and_keeps_the_order(tmp_path: Path) -> None:
    results = tmp_path / "rolling.json"
    options = ["--brokers", "3", "--route-poll", "4", "--poll", "2", "--results", str(results)]
    run_benchmark("cluster.rolling", *options, folder=tmp_path)
    found = json.loads(results.read_text())
    assert found["restarts"] == 6
    for stream in found["streams"]:
        assert stream["acknowledged"] > 100
        assert (stream["failed"], stream["lost"], stream["queuesOutOfOrder"]) == (0, 0, 0)
