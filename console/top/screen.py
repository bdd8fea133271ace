"""The screen of ``congreve top``: a head, a table of topics and one of groups, page by page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from congreve.base.byte_size import readable_size
from congreve.console.report import shown_age
from congreve.console.top.figures import Figures

if TYPE_CHECKING:
    from rich.console import RenderableType

HEAD_LINES = 4
"""Lines of a screen above its tables."""


def rows_that_fit(height: int) -> int:
    """Rows of each table on a screen of so many lines, of which the last says what keys do."""
    return max((height - HEAD_LINES - 3) // 2, 1)


def pages(figures: Figures, rows: int) -> int:
    """How many pages of so many rows the longer table has."""
    return max(1, -(-max(len(figures.topics), len(figures.groups)) // rows))


def screen(figures: Figures, rows: int, page: int = 0, keys: str | None = None) -> RenderableType:
    """One page of the figures as a head and two tables of at most `rows` rows.

    `keys` says below them what keys do; without it a line says what is left out.
    """
    from rich.console import Group as Stack
    from rich.text import Text

    topics = [
        (
            row.topic,
            f"{row.messages_per_second:,.0f}",
            f"{readable_size(row.bytes_per_second)}/s",
            f"{row.stored:,}",
        )
        for row in figures.topics[page * rows : (page + 1) * rows]
    ]
    groups = [
        (
            row.group,
            row.topic,
            f"{row.lag:,}",
            shown_age(row.lag_ms),
            f"{row.consumed_per_second:,.0f}",
            str(row.members),
        )
        for row in figures.groups[page * rows : (page + 1) * rows]
    ]
    last = pages(figures, rows)
    end = keys and f"page {page + 1} of {last}: {keys}"
    if keys is None and last > 1:
        counts = f"{len(figures.topics)} topics and {len(figures.groups)} rows of groups"
        end = f"the first {rows} of {counts}: --rows and --sort show others"
    return Stack(
        _head(figures),
        _table(("topic", "messages/s", "size", "stored"), topics),
        _table(("group", "topic", "lag", "oldest", "consumed/s", "members"), groups),
        *([Text(end, no_wrap=True)] if end else []),
    )


def _head(figures: Figures) -> RenderableType:
    from rich.text import Text

    size, free = figures.disk_bytes, figures.disk_free_bytes
    used = math.ceil(100 * (size - free) / size) if size else 0  # as df rounds
    state = "ready" if figures.trouble is None else f"NOT READY: {figures.trouble}"
    return Text(
        f"{figures.broker} {figures.address} {figures.role}: {state}\n"
        f"{figures.messages_per_second:,.0f} messages/s in, p99 of sends"
        f" {figures.put_latency99_ms} ms, {figures.waiting_answers} wait for the disk,"
        f" {figures.waiting_pulls} pulls wait\n"
        f"lag {figures.lag:,} messages, disk {used}% used,"
        f" {readable_size(free)} free, backend {figures.io_backend},"
        f" {figures.connections} connections\n"
    )


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2))
    words = ("topic", "group")
    for head in heads:
        table.add_column(head, justify="left" if head in words else "right", no_wrap=True)
    for row in rows:
        # As Text, because names that clients choose must not be parsed as markup.
        table.add_row(*(Text(cell) for cell in row))
    return table
