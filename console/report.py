"""The output of commands: tables for people, JSON for programs (`--output json`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def output_option(command: F) -> F:
    """Add the option `--output table|json`; the command gets it as the argument `output`."""
    return click.option(
        "--output",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help="Print a table or JSON.",
    )(command)


def namesrv_option(command: F) -> F:
    """Add the option `-n/--namesrv` (default: NAMESRV_ADDR), passed as the argument `namesrv`."""
    return click.option(
        "-n",
        "--namesrv",
        envvar="NAMESRV_ADDR",
        default="127.0.0.1:9876",
        show_default=True,
        help="Name servers, host:port;host:port.",
    )(command)


def show(rows: Sequence[dict[str, Any]], output: str, title: str | None = None) -> None:
    """Print rows that all have the same keys; the keys are the column heads."""
    if output == "json":
        import msgspec

        click.echo(msgspec.json.encode(rows).decode())
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title)
    for name in rows[0] if rows else ["nothing"]:
        table.add_column(name)
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    Console().print(table)
