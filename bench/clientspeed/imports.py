"""Measures the import time of the client as in an installed wheel: byte code is compiled before."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from statistics import median

from clientspeed.report import Figure

TIMES = 15
MOST_MS = 100
STATEMENTS = {
    "import asyncio, alone": ("import asyncio", None),
    "import congreve.client": ("import congreve.client", MOST_MS),
    "import Producer and PushConsumer": (
        "from congreve.client import Producer, PushConsumer",
        MOST_MS,
    ),
    "import every public name": ("from congreve.client import *", None),
}


def imports() -> list[Figure]:
    """Milliseconds in a new interpreter, medians of TIMES runs."""
    with tempfile.TemporaryDirectory(prefix="bytecode-") as folder:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        found = []
        for name, (statement, most) in STATEMENTS.items():
            times = [_milliseconds(statement, environment) for _ in range(TIMES)]
            found.append(Figure(name, median(times), "ms", most=most))
        return found


def _milliseconds(statement: str, environment: dict[str, str]) -> float:
    code = (
        "import time\nbegin = time.perf_counter()\n"
        f"{statement}\nprint((time.perf_counter() - begin) * 1e3)"
    )
    command = [sys.executable, "-c", code]
    return float(subprocess.run(command, env=environment, check=True, capture_output=True).stdout)
