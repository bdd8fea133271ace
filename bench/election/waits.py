"""The table of waits that a benchmark with kills prints and keeps."""

from __future__ import annotations

import json
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


def report(rows: Sequence[dict[str, float]], results: Path | None, **options: object) -> None:
    """Print the table; write it with all rows and the options to `results`, if that is a path."""
    shown = table(rows)
    for row in shown:
        print(json.dumps(row))
    if results is None:
        return
    document = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": process.commit(),
        "machine": process.machine(),
        **options,
        "table": shown,
        "kills": [{name: round(value, 3) for name, value in row.items()} for row in rows],
    }
    write_json(results, document)
