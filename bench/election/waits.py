"""The table of waits that a benchmark with kills prints and keeps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
from sidebyside import process
from sidebyside.report import write_json


def table(rows: Sequence[dict[str, float]]) -> list[dict[str, Any]]:
    """p50, p99 and the longest of each column, in seconds."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    shown = []
    for name in names:
        values = [row[name] for row in rows if name in row]
        p50, p99 = numpy.percentile(values, [50, 99], method="higher")
        shown.append(
            {
                "until": name,
                "kills": len(values),
                "p50": round(float(p50), 3),
                "p99": round(float(p99), 3),
                "max": round(max(values), 3),
            }
        )
    return shown


def keep(path: Path, rows: Sequence[dict[str, float]], **options: object) -> None:
    """Write the table and all rows."""
    document = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": process.commit(),
        "machine": process.machine(),
        **options,
        "table": table(rows),
        "kills": [{name: round(value, 3) for name, value in row.items()} for row in rows],
    }
    write_json(path, document)
