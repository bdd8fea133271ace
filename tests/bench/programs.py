"""Runs a benchmark as its page says, in a folder of its own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run_benchmark(module: str, *options: str, folder: Path, timeout_s: float = 300) -> str:
    """What `python -m MODULE` prints. Raises AssertionError when it fails."""
    paths = [str(ROOT / "bench"), str(ROOT / "tests"), os.environ.get("PYTHONPATH")]
    done = subprocess.run(
        [sys.executable, "-m", module, *options],
        env={**os.environ, "PYTHONPATH": ":".join(filter(None, paths))},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
