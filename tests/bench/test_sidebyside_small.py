"""The whole comparison in seconds, with Congreve alone: it runs and counts correctly."""

import json
import os
from pathlib import Path

from .programs import run_benchmark


def test_a_small_run_counts_every_message_and_writes_its_results(tmp_path: Path) -> None:
    options = ["--size", "small", "--only", "congreve"]
    options += ["--data", str(tmp_path / "data"), "--results", str(tmp_path / "results")]
    # The run fails if the broker stored another number of messages than it acknowledged.
    run_benchmark("sidebyside", *options, folder=tmp_path)
    document = json.loads((tmp_path / "results" / "sidebyside.json").read_text())
    assert (tmp_path / "results" / "sidebyside.png").stat().st_size > 0
    figures = {row["work"]: row["congreve"] for row in document["summary"]}
    assert len(figures) > 10
    assert [work for work, value in figures.items() if value is None] == []
    assert {result["driver"] for result in document["results"]} == {"congreve", "sink"}
    assert sum(result.get("errors", 0) for result in document["results"]) == 0
    text = json.dumps(document["machine"]) + json.dumps(document["settings"])
    assert str(Path.home()) not in text and os.uname().nodename not in text
