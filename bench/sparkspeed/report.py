"""Writes the measured figures and their targets as JSON and as a plot."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Figure:
    """One figure; `aim` has the same unit, None when the case is only a comparison."""

    work: str
    value: float
    unit: str = "M rows/s"
    aim: float | None = None
    least: bool = True
    """Whether the value must be above the aim (rows a second) or below it (a share)."""
    cpu_us: float | None = None
    """CPU time per row of all processes: the figure that a busy machine distorts least."""

    @property
    def reached(self) -> bool | None:
        """Whether the value reaches the aim."""
        if self.aim is None:
            return None
        return self.value >= self.aim if self.least else self.value <= self.aim


def write_json(path: Path, figures: list[Figure], messages: int) -> None:
    """Write all figures."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "messages": messages,
        "processors": os.cpu_count(),
        "load": [round(load, 2) for load in os.getloadavg()],
        "figures": [{**asdict(figure), "reached": figure.reached} for figure in figures],
    }
    path.write_text(json.dumps(document, indent=1) + "\n")


def write_plot(path: Path, figures: list[Figure]) -> None:
    """Plot rows per second as bars, with a mark where a case has an aim."""
    from matplotlib.figure import Figure as Picture

    rates = [figure for figure in figures if figure.unit == "M rows/s"][::-1]
    picture = Picture(figsize=(10, 0.4 * len(rates) + 1), layout="tight")
    axes = picture.subplots()
    axes.barh([rate.work for rate in rates], [rate.value for rate in rates], color="steelblue")
    for place, rate in enumerate(rates):
        if rate.aim is not None:
            axes.plot([rate.aim, rate.aim], [place - 0.4, place + 0.4], color="firebrick")
    axes.set_xlabel("million rows a second (red: to be reached)")
    picture.savefig(path, dpi=100)
