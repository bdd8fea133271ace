"""The command ``congreve top``."""

from __future__ import annotations

import time
from itertools import cycle

import click

from congreve.console.option_types import FiniteRange
from congreve.console.report import WIDTH_MAX, is_terminal, output_option, print_json, system_option
from congreve.console.top.figures import PORT, SORTS, Readings, metrics_url, read_varz, sort

ROWS = 15
"""Rows of a table in plain text."""
NEXT, BACK = (" ", "n", "j", "\x1b[B", "\x1b[6~"), ("b", "p", "k", "\x1b[A", "\x1b[5~")


@click.command(
    help="Show a broker's rates, lag and disk, live. The broker needs metricsPort, which"
    " `congreve run` has."
)
@click.option(
    "--url",
    default=f"http://127.0.0.1:{PORT}",
    show_default=True,
    help="The broker's metrics port: a URL, HOST:PORT or HOST.",
)
@click.option("--once", is_flag=True, help="Print one screen as plain text, and exit.")
@click.option("--json", "as_json", is_flag=True, help="The same as --output json.")
@click.option(
    "--interval",
    type=FiniteRange(0.2, 60),
    default=2.0,
    show_default=True,
    help="Seconds from one screen to the next.",
)
@click.option(
    "--rows",
    type=click.IntRange(1, 1_000_000),
    help=f"Rows of a table. [default: those that fit, {ROWS} in plain text, all in JSON]",
)
@click.option("--sort", "column", type=click.Choice(list(SORTS)), help="Sort by this column.")
@system_option
@output_option
def top(
    url: str,
    once: bool,
    as_json: bool,
    interval: float,
    rows: int | None,
    column: str | None,
    has_system: bool,
    output: str,
) -> None:
    """Request /varz repeatedly until `q` or Ctrl-C. JSON and a pipe get one screen."""
    as_json = as_json or output == "json"
    once = once or not is_terminal()
    address = metrics_url(url)
    readings = Readings(lambda: read_varz(address), has_system=has_system)
    time.sleep(min(interval, 1.0) if once or as_json else 0.2)
    if not (once or as_json):
        _live(readings, interval, rows, column)
        return
    figures = readings.next()
    if column is not None:
        sort(figures, column)
    if as_json:
        figures.topics, figures.groups = figures.topics[:rows], figures.groups[:rows]
        print_json(figures)
        return
    from rich.console import Console

    from congreve.console.top.screen import screen

    # In a pipe no line is broken.
    Console(width=None if is_terminal() else WIDTH_MAX).print(screen(figures, rows or ROWS))


def _live(readings: Readings, interval: float, rows: int | None, column: str | None) -> None:
    """Draw a screen every `interval` seconds; keys turn pages, sort and end."""
    from rich.live import Live

    from congreve.console.top.keys import Keys
    from congreve.console.top.screen import pages, rows_that_fit, screen

    columns = cycle(SORTS)
    page, figures, drawn_at = 0, readings.next(), time.monotonic()
    with Keys() as keys, Live(screen=True, auto_refresh=False) as live:
        try:
            while True:
                if column is not None:
                    sort(figures, column)
                shown = rows_that_fit(live.console.height)
                shown = shown if rows is None else min(shown, rows)
                page = min(max(page, 0), pages(figures, shown) - 1)
                order = f"s sort (by {column})" if column else "s sort"
                help_line = f"space next, b back, {order}, q quit"
                live.update(screen(figures, shown, page, help_line), refresh=True)
                key = keys.next(max(drawn_at + interval - time.monotonic(), 0))
                if key in ("q", "Q", "\x1b"):
                    return
                if key == "s":
                    column = next(columns)
                page += (key in NEXT) - (key in BACK)
                if time.monotonic() >= drawn_at + interval:
                    figures, drawn_at = readings.next(), time.monotonic()
        except KeyboardInterrupt:
            return
