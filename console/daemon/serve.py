"""``congreve run``, ``namesrv`` and ``broker``: the daemons.

Each command imports its servers only when it starts them, which keeps help quick.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import socket
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import click

from congreve.base.errors import CongreveError
from congreve.console.daemon.broker_conf import config_options, read_config
from congreve.console.daemon.daemon_log import log_options, start_log
from congreve.console.daemon.notify import Notifier
from congreve.console.daemon.short_collections import ShortCollections
from congreve.console.option_types import KeyValue, Pairs
from congreve.console.report import tls_file_option

PORT = click.IntRange(0, 65535)
"""The type of a port option."""
METRICS_PORT = 5557


@click.command(help="Run a name server and a broker in one process.")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    default=Path("data"),
    show_default=True,
    help="Folder for all files.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=PORT, default=10911, show_default=True, help="The broker's port (0: any)."
)
@click.option(
    "--namesrv-port", type=PORT, default=9876, show_default=True, help="The name server's (0: any)."
)
@click.option(
    "--flush",
    type=click.Choice(["sync", "async"]),
    default="sync",
    show_default=True,
    help="Answer a send once it is on disk (sync), or at once (async).",
)
@click.option(
    "--listener",
    "listeners",
    multiple=True,
    metavar="NAME=HOST:PORT",
    help="The broker listens here, too, for clients of the network NAME.",
)
@click.option(
    "--advertise",
    "advertised",
    multiple=True,
    metavar="NAME=HOST:PORT",
    help="The address that clients of NAME connect to; without it that of --listener.",
)
@click.option(
    "--namesrv-listener",
    "namesrv_listeners",
    multiple=True,
    metavar="NAME=HOST:PORT",
    help="The name server listens here, too, and answers with the addresses for NAME.",
)
@click.option(
    "--metrics-port",
    type=PORT,
    default=METRICS_PORT,
    show_default=True,
    help="Metrics, health and the figures of `congreve top` (0: any); any if the default is taken.",
)
@tls_file_option
@click.option(
    "--pair",
    metavar="HOST",
    help="The other machine of a crossed pair, with the same ports: run its master's slave, too.",
)
@click.option(
    "-o",
    "--set",
    "settings",
    multiple=True,
    type=KeyValue(),
    help="A further setting of the broker, as in broker.conf.",
)
@log_options
def run(
    data: Path,
    host: str,
    port: int,
    namesrv_port: int,
    flush: str,
    listeners: tuple[str, ...],
    advertised: tuple[str, ...],
    namesrv_listeners: tuple[str, ...],
    metrics_port: int,
    tls_config: str,
    pair: str | None,
    settings: Pairs,
    log_format: str,
    log_level: str,
) -> None:
    """Run both servers until SIGTERM or Ctrl-C."""
    from congreve.node import serve as serve_node

    texts: dict[str, Any] = {
        "bindAddress": host,
        "listenPort": port,
        "flushDiskType": f"{flush.upper()}_FLUSH",
        "listeners": ",".join(listeners),
        "advertisedListeners": ",".join(advertised),
        "tlsConfigFile": tls_config,
        "metricsPort": _metrics_port(metrics_port),
        **({} if pair is None else {"pairAddress": pair}),
        **dict(settings),
    }

    async def enter(stack: AsyncExitStack) -> str:
        node = await stack.enter_async_context(
            serve_node(
                data,
                namesrv_port=namesrv_port,
                namesrv_listeners=_addresses(namesrv_listeners),
                **texts,
            )
        )
        slave = "" if node.paired_slave is None else f", slave of {pair}"
        port = node.broker.config.metrics_port
        metrics = f", metrics http://127.0.0.1:{port}" if port > 0 else ""
        servers = f"broker {node.broker.address}, name server {node.address}{slave}"
        return f"{servers}{metrics}, data in {data}"

    serve(enter, log_format, log_level)


@click.command(help="Run a name server.")
@click.option("--host", default="0.0.0.0", show_default=True, help="Address to listen on.")
@click.option("--port", type=PORT, default=9876, show_default=True, help="Port (0: any).")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="Folder for kvConfig.json and namesrv.properties; without it, settings are not saved.",
)
@click.option(
    "--max-connections",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Limit of open connections; further ones are closed (0: from the limit of open files).",
)
@click.option(
    "--listener",
    "listeners",
    multiple=True,
    metavar="NAME=HOST:PORT",
    help="Listen here, too, and answer with the addresses that brokers advertise for NAME.",
)
@click.option(
    "--acl-folder",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Folder of plain_acl.yml: brokers and administrators need accounts.",
)
@tls_file_option
@log_options
def namesrv(
    host: str,
    port: int,
    data: Path | None,
    max_connections: int,
    listeners: tuple[str, ...],
    acl_folder: Path | None,
    tls_config: str,
    log_format: str,
    log_level: str,
) -> None:
    """Run the name server until SIGTERM or Ctrl-C."""
    from congreve.name_server import name_server
    from congreve.remoting.tls.settings import read_tls_file, server_tls

    async def enter(stack: AsyncExitStack) -> str:
        server = await stack.enter_async_context(
            name_server(
                host,
                port,
                data,
                max_connections,
                listeners=_addresses(listeners),
                tls=server_tls(read_tls_file(tls_config)),
                acl_folder=acl_folder,
            )
        )
        return f"name server {server.address}"

    serve(enter, log_format, log_level)


@click.command(help="Run a broker with a broker.conf.")
@config_options
@log_options
def broker(
    config_file: Path | None,
    namesrv_addr: str | None,
    settings: Pairs,
    log_format: str,
    log_level: str,
) -> None:
    """Run the broker until SIGTERM or Ctrl-C."""
    from congreve.broker.broker import Broker
    from congreve.broker.election.elected_broker import ElectedBroker
    from congreve.broker.pair import paired_slave
    from congreve.table_archive import archive_of

    config = read_config(config_file, namesrv_addr, settings)

    async def enter(stack: AsyncExitStack) -> str:
        serving: Broker | ElectedBroker
        if config.election.ha_mode == "classic":
            serving = Broker(config, config_path=config_file, archive=archive_of(config))
        else:
            archive = archive_of(config)
            serving = ElectedBroker(config, config_path=config_file, archive=archive)
        await stack.enter_async_context(serving)
        slave = paired_slave(config)
        if slave is not None:
            await stack.enter_async_context(slave)
        pair = "" if slave is None else f", slave of {config.pair_address} {slave.address}"
        return f"broker {config.broker_name} {serving.address}{pair}"

    serve(enter, log_format, log_level)


def _metrics_port(wanted: int) -> int:
    """The port for metrics: a second node on this machine does not get the default one."""
    if wanted != METRICS_PORT:
        return wanted
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError:
            return 0
    return wanted


def _addresses(listeners: tuple[str, ...]) -> dict[str, tuple[str, int]]:
    """The hosts and ports of listeners, by name. Raises HeaderError."""
    from congreve.remoting.messages.addresses import host_port
    from congreve.remoting.messages.listeners import parse_addresses

    further = parse_addresses(",".join(listeners))
    return {name: host_port(address) for name, address in further.items()}


def serve(
    enter: Callable[[AsyncExitStack], Awaitable[str]],
    log_format: str = "text",
    log_level: str = "WARNING",
) -> None:
    """Start the servers, print one line, wait for SIGTERM or SIGINT, and stop the servers.

    `enter` starts the servers on the stack and returns their description for that line. Raises
    CongreveError for an operating system error, such as a port in use.
    """
    import uvloop

    start_log(log_format, log_level)
    _write_audit_log()
    _raise_file_limit()

    async def stay() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        systemd = Notifier(os.environ)
        async with AsyncExitStack() as stack:
            what = await enter(stack)
            collections = ShortCollections()
            collections.begin()
            stack.callback(collections.end)
            click.echo(f"ready: {what}")
            systemd.ready()
            alive = asyncio.create_task(systemd.keep_alive())
            await stop.wait()
            systemd.stopping()
        alive.cancel()

    try:
        uvloop.run(stay())
    except OSError as error:
        raise CongreveError(f"cannot serve: {error}") from error


def _write_audit_log() -> None:
    """Write every line of the audit log to stderr, without the limit for repeated lines."""
    audit = logging.getLogger("congreve.broker.accounts.audit")
    audit.setLevel(logging.INFO)
    audit.propagate = False
    audit.addHandler(logging.StreamHandler())


def _raise_file_limit() -> None:
    # Queues in use keep their files open, and shells often set a soft limit of only 1024.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
