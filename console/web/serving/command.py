"""``congreve console``: the web console's process."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import ssl
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from congreve.base.errors import CongreveError
from congreve.base.extras import missing_package
from congreve.console.connection import connection, namesrv_option
from congreve.console.daemon.daemon_log import log_options, start_log
from congreve.console.daemon.notify import Notifier
from congreve.console.option_types import KeyValue, Pairs

if TYPE_CHECKING:
    from congreve.console.web.options import Options

PORT = 8080
SWITCH_S = 0.001
M_MMAP_THRESHOLD = -3  # of glibc's malloc.h
LARGE_BLOCK = 128 << 10


@click.command(help="Serve a web page about the brokers of a name server.")
@namesrv_option
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    help="Port (0: any).",
)
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A further host name that browsers use for the console, such as that of a proxy.",
)
@click.option(
    "--certificate",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="PEM file with the certificate, for https.",
)
@click.option(
    "--key",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="PEM file with the certificate's key.",
)
@click.option(
    "--store",
    type=click.Path(path_type=Path, file_okay=False),
    help="The root of a store on this machine, for the result of `congreve tune`.",
)
@click.option(
    "--broker-log",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A broker's log on this machine, for its audit lines.",
)
@click.option(
    "--hide-bodies",
    is_flag=True,
    help="Show the sizes of messages' bodies instead of the bodies, and search none of them.",
)
@click.option(
    "--bodies-for",
    multiple=True,
    metavar="ACCESS_KEY",
    help="With --hide-bodies: an account that sees bodies nevertheless.",
)
@click.option(
    "--audit-log",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Append what users change to this file, and show its end on the audit page.",
)
@click.option("--lake", help="The warehouse of topics' tables, for their page.")
@click.option("--lake-catalog", help="URI of their catalog; default: SQLite in the warehouse.")
@click.option(
    "--lake-property",
    "lake_properties",
    multiple=True,
    type=KeyValue(),
    help="A property of pyiceberg's catalog and files; repeatable.",
)
@click.option(
    "--lake-broker", help="brokerName of --store's broker.  [default: that of its last start]"
)
@click.option("--stop-with-stdin", is_flag=True, help="Also stop at the end of standard input.")
@log_options
def console(
    namesrv: str,
    host: str,
    port: int,
    hosts: tuple[str, ...],
    certificate: Path | None,
    key: Path | None,
    store: Path | None,
    broker_log: Path | None,
    hide_bodies: bool,
    bodies_for: tuple[str, ...],
    audit_log: Path | None,
    lake: str | None,
    lake_catalog: str | None,
    lake_properties: Pairs,
    lake_broker: str | None,
    stop_with_stdin: bool,
    log_format: str,
    log_level: str,
) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    if (certificate is None) != (key is None):
        raise CongreveError("--certificate and --key belong together: give both, or neither")
    start_log(log_format, log_level)
    try:
        import congreve.console.web.serving.server  # noqa: F401
    except ModuleNotFoundError as error:
        raise missing_package(error, "console") or error from error
    from congreve.console.web.options import Options

    options = Options(
        namesrv=namesrv,
        ssl=connection()["ssl"],
        host=host,
        port=port,
        hosts=hosts,
        secure=certificate is not None,
        store=store,
        broker_log=broker_log,
        audit_log=audit_log,
        hide_bodies=hide_bodies,
        bodies_for=bodies_for,
        lake=lake,
        lake_catalog=lake_catalog,
        lake_properties=lake_properties,
        lake_broker=lake_broker,
    )
    if stop_with_stdin:
        threading.Thread(target=_stop_with_stdin, daemon=True).start()
    try:
        asyncio.run(_serve(options, certificate, key))
    except ssl.SSLError as error:
        why = f"{certificate} and {key} are no certificate and its key in PEM form"
        raise CongreveError(f"{why}: {error}") from error
    except OSError as error:
        raise CongreveError(f"cannot serve on {host}:{port}: {error}") from error
    except KeyboardInterrupt:
        return


async def _serve(options: Options, certificate: Path | None, key: Path | None) -> None:
    """Serve, and notify systemd of a service's state."""
    from congreve.console.web.serving.server import serve

    return_large_blocks()
    # A thread that reads the lag of all groups then releases the GIL to the pages more often.
    sys.setswitchinterval(SWITCH_S)
    systemd = Notifier(os.environ)

    def ready(text: str) -> None:
        click.echo(text)
        systemd.ready()

    alive = asyncio.create_task(systemd.keep_alive())
    try:
        await serve(options, certificate, key, ready)
    finally:
        systemd.stopping()
        alive.cancel()


def return_large_blocks() -> None:
    """Let glibc return every large block to the system.

    It otherwise keeps as much as twice the largest block that was freed: 10 MiB after an answer
    with the lag of ten thousand groups.
    """
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK)


def _stop_with_stdin() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)
