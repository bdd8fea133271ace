"""Each figure and its target: a table for people, JSON for programs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parents[1] / "results"


@dataclass(frozen=True)
class Figure:
    """One figure; `least` or `most` bounds it in its own unit; without either it is a
    comparison."""

    work: str
    value: float
    unit: str
    least: float | None = None
    most: float | None = None
    cpu_us: float | None = None
    """CPU time of the client's process per message."""

    @property
    def bound(self) -> str:
        """The bound as text."""
        if self.least is not None:
            return f">= {_number(self.least)} {self.unit}"
        return "" if self.most is None else f"<= {_number(self.most)} {self.unit}"

    @property
    def met(self) -> bool | None:
        """Whether the bound is met; None when there is none."""
        if self.least is not None:
            return self.value >= self.least
        return None if self.most is None else self.value <= self.most

    @property
    def text(self) -> str:
        """The value with its unit."""
        return f"{_number(self.value)} {self.unit}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def show(title: str, figures: Iterable[Figure]) -> None:
    """Print the table."""
    table = Table("work", title=title)
    for name in ("value", "bound"):
        table.add_column(name, justify="right")
    table.add_column("")
    table.add_column("our CPU us/msg", justify="right")
    for figure in figures:
        verdict = {None: "", True: "met", False: "NOT MET"}[figure.met]
        cpu = "" if figure.cpu_us is None else f"{figure.cpu_us:.2f}"
        table.add_row(figure.work, figure.text, figure.bound, verdict, cpu)
    Console(width=110).print(table)


def write(path: Path, figures: dict[str, list[Figure]]) -> None:
    """Write the figures by broker."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "processors": os.cpu_count(),
        "load": [round(load, 2) for load in os.getloadavg()],
        "brokers": {
            broker: [{**asdict(figure), "met": figure.met} for figure in found]
            for broker, found in figures.items()
        },
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
