"""The checker of histories: main.go, with a library that knows nothing of this project."""

from __future__ import annotations

import subprocess
from pathlib import Path

from harness import build


def faults(files: list[Path]) -> list[str]:
    """The histories that are not linearizable."""
    program = build.go_program(Path(__file__).parent)
    done = subprocess.run([program, *files], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{program}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return [line for line in done.stdout.splitlines() if not line.endswith(", linearizable")]
