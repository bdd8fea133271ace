"""The long run in seconds: all that it does beside the sends happens."""

import json
from pathlib import Path

from .programs import run_benchmark


def test_a_small_long_run_sends_deletes_scrapes_and_reads(tmp_path: Path) -> None:
    options = ["--minutes", "0.2", "--rate", "20000", "--behind", "0.1"]
    options += ["--data", str(tmp_path / "data"), "--results", str(tmp_path / "results")]
    run_benchmark("longrun", *options, folder=tmp_path)
    document = json.loads((tmp_path / "results" / "longrun.json").read_text())
    assert document["failures"] == 0
    assert document["scrapes"] > 0
    assert document["readByTheConsumer"] > 0
    assert document["memoryMiB"]
    assert "1/(1-Percentile)" in (tmp_path / "results" / "longrun.hgrm").read_text()
