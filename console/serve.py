"""``congreve run``, ``namesrv`` and ``broker``: the daemons.

What serves is imported when it is about to serve: help must come at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from congreve.console.notify import notify_ready
from congreve.errors import CongreveError

if TYPE_CHECKING:
    from congreve.broker.config import BrokerConfig

LOOPBACK = "127.0.0.1"
ANY_ADDRESS = ("0.0.0.0", "::", "")
PORT = click.IntRange(0, 65535)


class KvFile:
    """The name server's key-value table in a file (RocketMQ: kvConfig.json)."""

    def __init__(self, path: Path) -> None:
        from congreve.engine.statefile import StateFile

        self._folder = path.parent
        self._file = StateFile(str(path))

    def load(self) -> str | None:
        """The saved text, None where there is none."""
        return self._file.load(str)

    def save(self, text: str) -> None:
        """Replace the text, atomically; the folder appears with the first one. CongreveError."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CongreveError(f"cannot make {self._folder}: {error.strerror}") from error
        self._file.replace(text)


@click.command(help="Name server and broker in one process.")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    default=Path("data"),
    show_default=True,
    help="Folder for everything that is kept.",
)
@click.option("--host", default=LOOPBACK, show_default=True, help="Address to listen on.")
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
    help="Answer a send when it is on disk, or at once.",
)
def run(data: Path, host: str, port: int, namesrv_port: int, flush: str) -> None:
    """Serve RocketMQ clients on the usual ports until SIGTERM or Ctrl-C."""
    from congreve.broker.broker import Broker
    from congreve.namesrv.server import NameServer

    async def enter(stack: AsyncExitStack) -> str:
        server = NameServer(
            host=host, port=namesrv_port, kv_store=KvFile(data / "namesrv" / "kvConfig.json")
        )
        await stack.enter_async_context(server)
        config = local_config(data, host, port, server.address, flush)
        broker = await stack.enter_async_context(Broker(config))
        return f"broker {broker.address}, name server {server.address}, data in {data}"

    serve(enter)


def local_config(data: Path, host: str, port: int, namesrv: str, flush: str) -> BrokerConfig:
    """The settings of a broker on one machine that keeps its store in `data`."""
    from congreve.broker.config import BrokerConfig

    config = BrokerConfig()
    # Who listens everywhere tells clients the address of this machine, which is the default.
    addresses = {} if host in ANY_ADDRESS else {"brokerIP1": host, "brokerIP2": host}
    config.apply(
        {
            "namesrvAddr": namesrv,
            "bindAddress": host,
            **addresses,
            "listenPort": str(port),
            "storePathRootDir": str(data / "store"),
            "flushDiskType": f"{flush.upper()}_FLUSH",
        }
    )
    return config


@click.command(help="A name server.")
@click.option("--host", default="0.0.0.0", show_default=True, help="Address to listen on.")
@click.option("--port", type=PORT, default=9876, show_default=True, help="Port (0: any).")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="Folder for kvConfig.json; without it key-value settings are not kept.",
)
def namesrv(host: str, port: int, data: Path | None) -> None:
    """Serve routes until SIGTERM or Ctrl-C."""
    from congreve.namesrv.server import NameServer

    async def enter(stack: AsyncExitStack) -> str:
        kv_store = KvFile(data / "kvConfig.json") if data else None
        server = await stack.enter_async_context(
            NameServer(host=host, port=port, kv_store=kv_store)
        )
        return f"name server {server.address}"

    serve(enter)


@click.command(help="A broker, set up by a broker.conf.")
@click.option(
    "-c",
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="RocketMQ broker.conf, read as it is.",
)
@click.option(
    "-n",
    "--namesrv",
    "namesrv_addr",
    envvar="NAMESRV_ADDR",
    help="Name servers, host:port;host:port. Wins over the file.",
)
@click.option(
    "-o",
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="One more setting, as in broker.conf. Wins over the file.",
)
def broker(config_file: Path | None, namesrv_addr: str | None, settings: tuple[str, ...]) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    from congreve.broker.broker import Broker
    from congreve.broker.config import BrokerConfig, load_config

    overrides = dict(_setting(text) for text in settings)
    if namesrv_addr:
        overrides["namesrvAddr"] = namesrv_addr
    if config_file:
        config, unknown = load_config(config_file, overrides)
        for line, key in unknown:
            click.echo(f"congreve: {config_file}:{line}: {key} has no effect here", err=True)
    else:
        config = BrokerConfig()
        for key in config.apply(overrides):
            click.echo(f"congreve: {key} has no effect here", err=True)

    async def enter(stack: AsyncExitStack) -> str:
        serving = await stack.enter_async_context(Broker(config, config_path=config_file))
        return f"broker {config.broker_name} {serving.address}"

    serve(enter)


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--set")
    return key.strip(), value


def serve(enter: Callable[[AsyncExitStack], Awaitable[str]]) -> None:
    """Enter the servers, say so in one line, stay until SIGTERM or SIGINT, leave in order."""
    import uvloop

    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )

    _raise_file_limit()

    async def stay() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        async with AsyncExitStack() as stack:
            what = await enter(stack)
            click.echo(f"ready: {what}")
            notify_ready(os.environ.get("NOTIFY_SOCKET"))
            await stop.wait()

    try:
        uvloop.run(stay())
    except OSError as error:
        raise CongreveError(f"cannot serve: {error}") from error


def _raise_file_limit() -> None:
    # A queue's files stay open while it is used; shells often begin with 1024.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
