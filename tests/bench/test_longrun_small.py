"""The long run in seconds: all that it does beside the sends happens."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_a_small_long_run_sends_deletes_scrapes_and_reads(tmp_path: Path) -> None:
    paths = [str(ROOT / "bench"), str(ROOT / "tests"), os.environ.get("PYTHONPATH")]
    command = [sys.executable, "-m", "longrun", "--minutes", "0.2", "--rate", "20000"]
    command += ["--behind", "0.1"]
    command += ["--data", str(tmp_path / "data"), "--results", str(tmp_path / "results")]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": ":".join(filter(None, paths))},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads((tmp_path / "results" / "longrun.json").read_text())
    assert document["failures"] == 0
    assert document["scrapes"] > 0
    assert document["readByTheConsumer"] > 0
    assert document["memoryMiB"]
    assert "1/(1-Percentile)" in (tmp_path / "results" / "longrun.hgrm").read_text()
