"""The README's picture: five ratios of one run.

    PYTHONPATH=bench:tests python -m sidebyside.ratios

It reads bench/results/sidebyside.json and writes ratios.png beside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import msgspec

from .report import OURS, THEIRS

RESULTS = Path(__file__).resolve().parents[1] / "results"

#: The summary's `work` and its title in the picture. Less is better for times and memory.
CHOSEN = {
    "send 128 B, ASYNC_FLUSH, 4 x 32 in flight": "send 128-byte messages",
    "send 1 KiB, the same": "send 1 KiB messages",
    "pull 32 x 1 KiB, 8 connections, hot": "pull 1 KiB messages",
    "one at a time, p50": "one send at a time, median time",
    "ready after kill -9": "ready again after kill -9, 1 GB store",
}
LESS_IS_BETTER = ("ms", "s")
COLOR = "#2f6f9f"


def ratios(summary: list[dict[str, Any]]) -> list[tuple[str, float, str]]:
    """Title, ratio to RocketMQ (above 1 is better), and both figures as text. Raises KeyError
    when a case is missing."""
    rows = {row["work"]: row for row in summary}
    found = []
    for work, title in CHOSEN.items():
        ours, theirs, unit = (rows[work][name] for name in (OURS, THEIRS, "unit"))
        better = theirs / ours if unit in LESS_IS_BETTER else ours / theirs
        found.append((title, better, f"{_text(ours, unit)} beside {_text(theirs, unit)}"))
    return found


def _text(value: float, unit: str) -> str:
    if unit == "msg/s":
        return f"{value / 1000:,.0f} k msg/s"
    return f"{value * 1000:.0f} us" if unit == "ms" else f"{value:.1f} {unit}"


def write_picture(path: Path, rows: list[tuple[str, float, str]]) -> None:
    """One bar for each ratio; RocketMQ is the line at 1."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8.5, 2.9))
    bars = axes.barh([title for title, _, _ in rows], [ratio for _, ratio, _ in rows], color=COLOR)
    axes.bar_label(
        bars, [f"{ratio:.1f} x   {text}" for _, ratio, text in rows], padding=4, fontsize=8
    )
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xlim(0, 1.75 * max(ratio for _, ratio, _ in rows))
    axes.set_xlabel("times as good as Apache RocketMQ 4.9.4 (line: RocketMQ)", fontsize=8)
    axes.tick_params(labelsize=9)
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def main() -> None:
    document = msgspec.json.decode((RESULTS / "sidebyside.json").read_bytes())
    write_picture(RESULTS / "ratios.png", ratios(document["summary"]))


if __name__ == "__main__":
    main()
