"""The picture of a measurement: latency against load for SYNC_FLUSH, bandwidth for ASYNC_FLUSH."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from congreve.base.extras import MissingPackageError
from congreve.console.tune.rounds import ASYNC_STEPS, KIB, RAW
from congreve.engine.state.tuned import ASYNC, SYNC, MeasuredStep, Tuned

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NO_MATPLOTLIB = "matplotlib is not installed (pip install 'congreve[bench]')"
FORMATS = (".png", ".svg", ".pdf")
COLOURS = {"mmap": "#4477aa", "pool": "#ccbb44", "uring": "#228833", RAW: "#999999"}


def check_picture(png: Path) -> None:
    """Raises ClickException or MissingPackageError, before any measurement, if the picture cannot
    be written."""
    if not png.parent.is_dir():
        raise click.ClickException(f"cannot write {png}: the folder {png.parent} does not exist")
    if png.is_dir():
        raise click.ClickException(f"cannot write {png}: it is a folder")
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingPackageError(f"cannot draw {png}: {NO_MATPLOTLIB}")
    if png.suffix.lower() not in FORMATS:
        raise click.ClickException(f"cannot draw {png}: its name must end with .png, .svg or .pdf")


def draw(tuned: Tuned, path: Path) -> None:
    """Write the picture. Raises ClickException if the file cannot be written."""
    if importlib.util.find_spec("matplotlib") is None:
        click.echo(f"no picture: {NO_MATPLOTLIB}", err=True)
        return
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 5), layout="constrained")
    sync, buffered = figure.subplots(1, 2, width_ratios=(3, 2))
    _draw_sync(sync, tuned)
    _draw_async(buffered, tuned)
    rounds = f"medians of {tuned.rounds} rounds, bars from the lowest to the highest"
    figure.suptitle(f"{tuned.machine.device if tuned.machine else 'disk'}: {rounds}", fontsize=10)
    try:
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {error.strerror}") from error
    click.echo(f"picture: {path}", err=True)


def _draw_sync(axes: Axes, tuned: Tuned) -> None:
    steps = [step for step in tuned.measured if step.policy == SYNC]
    for backend in dict.fromkeys(step.backend for step in steps):
        mine = sorted((step for step in steps if step.backend == backend), key=_in_flight)
        chosen = backend == tuned.io_backend
        axes.errorbar(
            [_label(step) for step in mine],
            [step.p50_us for step in mine],
            yerr=_bars((step.p50_us, step.p50_us_range) for step in mine),
            color=COLOURS.get(backend),
            linewidth=2.5 if chosen else 1,
            linestyle=":" if backend == RAW else "-",
            marker="o",
            markersize=4,
            capsize=3,
            label="the disk alone" if backend == RAW else f"{backend}{' (chosen)' * chosen}",
        )
    axes.set(
        yscale="log",
        xlabel="load: groups in flight x KiB of a group",
        ylabel="p50 of a group until it is on disk, us",
        title="SYNC_FLUSH: latency against load",
    )
    axes.grid(which="both", alpha=0.3)
    axes.legend()


def _in_flight(step: MeasuredStep) -> tuple[int, int]:
    return step.in_flight * step.group_bytes, step.group_bytes


def _label(step: MeasuredStep) -> str:
    return f"{step.in_flight} x {step.group_bytes // KIB}"


def _draw_async(axes: Axes, tuned: Tuned) -> None:
    chosen = None if tuned.async_flush is None else tuned.async_flush.io_backend
    steps = [
        step
        for step in tuned.measured
        if step.policy == ASYNC and step.group_bytes == ASYNC_STEPS[-1]
    ]
    names = [f"{step.backend}{' (chosen)' * (step.backend == chosen)}" for step in steps]
    axes.bar(
        names,
        [step.bytes_per_s / 1e6 for step in steps],
        yerr=_bars((step.bytes_per_s / 1e6, _scaled(step.bytes_per_s_range)) for step in steps),
        capsize=4,
        color=[COLOURS.get(step.backend) for step in steps],
        edgecolor=["black" if step.backend == chosen else "none" for step in steps],
        linewidth=2,
    )
    axes.set(ylabel="MB/s until all is on disk", title="ASYNC_FLUSH: bandwidth, groups of 64 KiB")
    axes.grid(axis="y", alpha=0.3)


def _scaled(bytes_per_s: tuple[float, float]) -> tuple[float, float]:
    return bytes_per_s[0] / 1e6, bytes_per_s[1] / 1e6


def _bars(values: Iterable[tuple[float, tuple[float, float]]]) -> list[list[float]]:
    """Lengths of error bars, below and above each value."""
    found = list(values)
    return [
        [middle - low for middle, (low, _) in found],
        [high - middle for middle, (_, high) in found],
    ]
