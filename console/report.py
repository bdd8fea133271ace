"""The output of commands: tables for people, JSON for programs (`--output json`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from congreve.console.loadgen.generator import SECRET_KEY

if TYPE_CHECKING:
    from rich.table import Table

F = TypeVar("F", bound=Callable[..., Any])
WIDTH_MAX = 10_000
"""Characters of a line."""


def output_option(command: F) -> F:
    """Add the option `--output table|json`; the command gets it as the argument `output`."""
    return click.option(
        "--output",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help="Print a table or JSON.",
    )(command)


_SSL = "congreve.console.ssl"
_CREDENTIALS = "congreve.console.credentials"


def cluster_options(command: F) -> F:
    """Add the options of namesrv_option() and access_option()."""
    return namesrv_option(access_option(command))


def namesrv_option(command: F) -> F:
    """Add the options of a command that finds a cluster.

    `-n/--namesrv` (default: NAMESRV_ADDR) is passed as the argument `namesrv`, `--tls` is for
    connection().
    """
    return click.option(
        "-n",
        "--namesrv",
        envvar="NAMESRV_ADDR",
        default="127.0.0.1:9876",
        show_default=True,
        help="Name servers, host:port;host:port.",
    )(tls_option(command))


def tls_option(command: F) -> F:
    """Add the option `--tls`, which is for connection()."""
    return click.option(
        "--tls",
        envvar="CONGREVE_CLIENT_TLS",
        expose_value=False,
        callback=_keep_ssl,
        metavar="FILE",
        help="Encrypt all connections, by the keys tls.client.* of this tls.properties.",
    )(command)


def access_option(command: F) -> F:
    """Add the option `--access-key`, which is for connection()."""
    return click.option(
        "--access-key",
        envvar="CONGREVE_ACCESS_KEY",
        expose_value=False,
        callback=_keep_credentials,
        metavar="KEY",
        help=f"Sign requests as this account; its secret is in the environment as {SECRET_KEY}.",
    )(command)


def _keep_credentials(context: click.Context, _: click.Parameter, key: str | None) -> None:
    if key is None:
        return
    from congreve.client import Credentials

    secret = os.environ.get(SECRET_KEY)
    if secret is None:
        raise click.BadParameter(
            f"the account {key} needs its secret: set the environment variable {SECRET_KEY}"
        )
    context.meta[_CREDENTIALS] = Credentials(access_key=key, secret_key=secret)


def _keep_ssl(context: click.Context, _: click.Parameter, path: str | None) -> None:
    if path is not None:
        from congreve.client import tls_context

        context.meta[_SSL] = tls_context(path)


def connection() -> dict[str, Any]:
    """Settings for the client of the running command."""
    kept = click.get_current_context().meta
    return {"ssl": kept.get(_SSL), "credentials": kept.get(_CREDENTIALS)}


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
    whole: Collection[str] = (),
    expand: bool = False,
) -> None:
    """Print rows that all have the same keys; the keys are the column heads. A table without rows
    is the word `none`. Cells of the columns `whole`, and all cells in a pipe or a file, are not
    broken into lines: a user copies them. With `expand` a terminal that is too narrow for one line
    of each row shows a block of lines of each row instead."""
    if output == "json":
        import msgspec

        click.echo(msgspec.json.encode(rows).decode())
        return
    if not rows:
        click.echo("none" if title is None else f"{title}: none")
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title)
    for name in rows[0]:
        table.add_column(name, overflow="fold", no_wrap=name in whole)
    for row in rows:
        table.add_row(*map(_printable, row.values()))
    # Cells come from messages: they are no markup of rich's.
    console = Console(markup=False, emoji=False)
    needed = console.measure(table, options=console.options.update(max_width=WIDTH_MAX))
    if not console.is_terminal:
        console.width = needed.maximum
    elif expand and needed.maximum > console.width:
        table = _blocks(rows, title)
    elif whole:
        console.width = max(console.width, needed.minimum)
    console.print(table)


def _blocks(rows: Sequence[dict[str, Any]], title: str | None) -> Table:
    from rich.table import Table

    table = Table(title=title, box=None, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        for name, value in row.items():
            table.add_row(name, _printable(value))
        table.add_row()
    return table


def _printable(value: object) -> str:
    """The text of a cell; control characters, which could change the terminal, as escapes."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode()
        for each in str(value)
    )
