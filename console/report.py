"""What commands print: tables in a terminal, plain columns in a pipe, JSON with `--output json`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

import click

from congreve.base.errors import CongreveError
from congreve.base.text_or_base64 import text_or_base64

if TYPE_CHECKING:
    from rich.table import Table

F = TypeVar("F", bound=Callable[..., Any])
Rows = list[dict[str, Any]]
"""The rows of a table. All have the same keys, which have no blanks."""
Shown = Mapping[str, Callable[[Any], str]]
"""How a table shows the values of columns; in JSON they stay as they are."""
WIDTH_MAX = 10_000
"""Characters of a line."""
BODY_SHOWN = 60
"""Bytes of a message's body in a table."""
GAP = "  "
EMPTY = "-"


def output_option(command: F) -> F:
    """Add the option `--output table|json`; the command gets it as the argument `output`."""
    return click.option(
        "--output",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help="Print a table, which is plain columns in a pipe, or JSON.",
    )(command)


def system_option(command: F) -> F:
    """Add the option `--system`; the command gets it as the argument `has_system`."""
    return click.option(
        "--system",
        "has_system",
        is_flag=True,
        help="Also RocketMQ's and Congreve's own: retries, dead letters, timers.",
    )(command)


def tls_file_option(command: F) -> F:
    """Add the option `--tls-config`: a server's tls.properties, as the argument `tls_config`."""
    return click.option(
        "--tls-config",
        envvar="CONGREVE_TLS_CONFIG",
        default="/etc/rocketmq/tls.properties",
        show_default=True,
        help="Settings of TLS: certificate, key, mode.",
    )(command)


def show(
    rows: Sequence[dict[str, Any]],
    output: str,
    title: str | None = None,
    *,
    shown: Shown | None = None,
    whole: Collection[str] = (),
    expand: bool = False,
) -> None:
    """Print rows that all have the same keys.

    JSON has the values as they are. A table's heads are the keys, with blanks and without the unit
    of a column of `shown`; without rows it is the word `none`. Where stdout is no terminal, and
    without rich, a line of the keys and one of each row have columns of equal width. Cells of the
    columns `whole` are not broken into lines: a user copies them. With `expand` a terminal that is
    too narrow for one line of each row shows a block of lines of each row instead.
    """
    if output == "json":
        print_json(list(rows))
        return
    is_plain = not is_terminal() or find_spec("rich") is None
    if not rows:
        click.echo("none" if title is None else f"{title}: none", err=is_plain)
        return
    shown = shown or {}
    cells = [[_cell(value, shown.get(name)) for name, value in row.items()] for row in rows]
    if is_plain:
        if title is not None:
            click.echo(title, err=True)
        _show_plain([list(rows[0]), *cells])
    else:
        heads = [_head(name, name in shown) for name in rows[0]]
        kept = [name in whole for name in rows[0]]
        _show_table(heads, cells, title, kept, expand)


def done(output: str, text: str, **row: object) -> None:
    """Say what a command did: a sentence for a person, none without `text`, or one row of JSON."""
    if output == "json":
        print_json([row])
    elif text:
        click.echo(text)


def print_json(value: object) -> None:
    """Print one line of JSON."""
    import msgspec

    click.echo(msgspec.json.encode(value))


def is_terminal() -> bool:
    """Whether a person reads stdout; FORCE_COLOR says so, too."""
    return sys.stdout.isatty() or bool(os.environ.get("FORCE_COLOR"))


def shown_time(milliseconds: int) -> str:
    """A time of a table: local, to the second, as options take it."""
    return f"{datetime.fromtimestamp(milliseconds / 1000):%Y-%m-%dT%H:%M:%S}"


def body_fields(read: Callable[[], bytes], output: str) -> dict[str, str | None]:
    """The body of a message in a row: of a table its beginning, of JSON all of it.

    Bytes that are no text are `body_base64` there; a body that cannot be decompressed is null, with
    the reason as `fault`.
    """
    try:
        body = read()
    except CongreveError as error:
        return {"body": str(error)} if output == "table" else {"body": None, "fault": str(error)}
    if output == "table":
        return {"body": body[:BODY_SHOWN].decode(errors="replace")}
    return text_or_base64("body", body)


def shown_age(milliseconds: int) -> str:
    """An age or a lag of a table, in its two greatest units."""
    seconds = milliseconds // 1000
    for size, unit, small, small_unit in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if seconds >= size:
            return f"{seconds // size}{unit}{seconds % size // small}{small_unit}"
    return f"{milliseconds / 1000:.1f}s"


def printable(text: str) -> str:
    """A text whose control characters, which could change the terminal, are escapes."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def _cell(value: object, form: Callable[[Any], str] | None) -> str:
    if value is None or value == "":
        return ""
    if form is not None:
        return printable(form(value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(printable(str(each)) for each in value)
    if isinstance(value, dict):
        return ", ".join(f"{printable(name)}={printable(str(of))}" for name, of in value.items())
    return printable(str(value))


def _head(name: str, has_form: bool) -> str:
    return (name.removesuffix("_ms") if has_form else name).replace("_", " ")


def _show_plain(lines: list[list[str]]) -> None:
    """Columns for awk and cut: no cell is empty, none is cut off."""
    lines[0] = [name.strip().replace(" ", "_") for name in lines[0]]
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    for line in lines:
        cells = [(cell or EMPTY).ljust(width) for cell, width in zip(line, widths, strict=True)]
        click.echo(GAP.join(cells).rstrip())


def _show_table(
    heads: list[str], cells: list[list[str]], title: str | None, kept: list[bool], expand: bool
) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title)
    for head, is_kept in zip(heads, kept, strict=True):
        table.add_column(head, overflow="fold", no_wrap=is_kept)
    for row in cells:
        table.add_row(*row)
    # Cells come from messages: they are no markup of rich's.
    console = Console(markup=False, emoji=False)
    needed = console.measure(table, options=console.options.update(max_width=WIDTH_MAX))
    if expand and needed.maximum > console.width:
        table = _blocks(heads, cells, title)
    elif any(kept):
        console.width = max(console.width, needed.minimum)
    console.print(table)


def _blocks(heads: list[str], cells: list[list[str]], title: str | None) -> Table:
    from rich.table import Table

    table = Table(title=title, box=None, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in cells:
        for name, value in zip(heads, row, strict=True):
            table.add_row(name, value)
        table.add_row()
    return table
