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


_SSL = "congreve.console.ssl"


def namesrv_option(command: F) -> F:
    """Add the options of a command that connects to a cluster.

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


def _keep_ssl(context: click.Context, _: click.Parameter, path: str | None) -> None:
    if path is not None:
        from congreve.client import tls_context

        context.meta[_SSL] = tls_context(path)


def connection() -> dict[str, Any]:
    """Settings for the client of the running command."""
    return {"ssl": click.get_current_context().meta.get(_SSL)}


def tls_file_option(command: F) -> F:
    """Add the option `--tls-config`: a server's tls.properties, as the argument `tls_config`."""
    return click.option(
        "--tls-config",
        envvar="CONGREVE_TLS_CONFIG",
        default="/etc/rocketmq/tls.properties",
        show_default=True,
        help="Settings of TLS: certificate, key, mode.",
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
