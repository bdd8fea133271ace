"""The README's picture: the highest rates of the four brokers.

    PYTHONPATH=bench:tests python -m family.picture

It reads bench/results/family.json and writes family.png beside it.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from sidebyside.report import Medians
from sidebyside.results import CaseResult

from .brokers import KINDS, TITLES

RESULTS = Path(__file__).resolve().parents[1] / "results"
CHOSEN = {
    "send-500x1": "500 connections,\none send in flight",
    "send-4x32": "4 connections,\n32 sends in flight",
    "sync-500x1": "500 connections,\nSYNC_FLUSH",
    "pull-32x1KiB": "pulls of\n32 x 1 KiB",
}
"""A case and its words in the picture."""
COLORS = dict(zip(KINDS, ("#2f6f9f", "#c46b2d", "#8a8a8a", "#c9c9c9"), strict=True))


def rates(results: list[CaseResult]) -> dict[str, dict[str, float]]:
    """By case and broker: messages a second, the median of the rounds."""
    medians = Medians(results)
    found: dict[str, dict[str, float]] = {}
    for case in CHOSEN:
        for kind in KINDS:
            rate = medians.get(kind, case, lambda r: r.rate)
            if rate is not None:
                found.setdefault(case, {})[kind] = rate
    return found


def words(results: list[CaseResult]) -> str:
    """The picture's figures for those who cannot see it."""
    parts = []
    for case, of in rates(results).items():
        shown = ", ".join(f"{TITLES[kind]} {rate / 1000:,.0f}" for kind, rate in of.items())
        parts.append(f"{CHOSEN[case].replace(chr(10), ' ')}: {shown}")
    return f"Thousand messages a second. {'; '.join(parts)}"


def write(results: list[CaseResult], path: Path) -> None:
    """A group of bars for each case, a bar for each broker."""
    from matplotlib.figure import Figure

    found = rates(results)
    figure = Figure(figsize=(8.5, 2.8), layout="constrained")
    for axes, (case, of) in zip(figure.subplots(1, len(CHOSEN)), found.items(), strict=False):
        bars = axes.bar(
            [TITLES[kind].replace("-", "-\n").replace("Q ", "Q\n") for kind in of],
            [rate / 1000 for rate in of.values()],
            color=[COLORS[kind] for kind in of],
        )
        axes.bar_label(bars, [f"{rate / 1000:,.0f}" for rate in of.values()], fontsize=8)
        axes.set_title(CHOSEN[case], fontsize=8.5)
        axes.set_yticks([])
        axes.tick_params(axis="x", labelsize=5.5, length=0)
        axes.margins(y=0.12)
        axes.spines[["top", "right", "left"]].set_visible(False)
    figure.supylabel("thousand messages a second", fontsize=8)
    figure.savefig(path, dpi=130)


def saved() -> list[CaseResult]:
    """The results of the saved run."""
    document = msgspec.json.decode((RESULTS / "family.json").read_bytes())
    return msgspec.convert(document["results"], list[CaseResult])


if __name__ == "__main__":
    write(saved(), RESULTS / "family.png")
    print(words(saved()))
