"""Queries of a cluster with an admin client, and times as tables show them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TypeVar

from congreve.client.admin import AdminClient
from congreve.console.report import connection

T = TypeVar("T")


def ask(namesrv: str, question: Callable[[AdminClient], Awaitable[T]]) -> T:
    """The result of `question` for a client of the cluster. Raises CongreveError as it does."""

    async def run() -> T:
        async with AdminClient(namesrv, **connection()) as admin:
            return await question(admin)

    return asyncio.run(run())


def shown_time(milliseconds: int) -> str:
    """A time of a table: local, to the second."""
    return f"{datetime.fromtimestamp(milliseconds / 1000):%Y-%m-%d %H:%M:%S}"


def shown_age(milliseconds: int) -> str:
    """An age or a lag of a table, in its two greatest units."""
    seconds = milliseconds // 1000
    for size, unit, small, small_unit in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if seconds >= size:
            return f"{seconds // size} {unit} {seconds % size // small} {small_unit}"
    return f"{milliseconds / 1000:.1f} s"
