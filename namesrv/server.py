"""The name server: processors over one route table (RocketMQ: NamesrvController)."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from congreve.namesrv.broker_processor import BrokerProcessor
from congreve.namesrv.config import NamesrvConfig
from congreve.namesrv.kvconfig import KvConfig, KvStore
from congreve.namesrv.route_processor import RouteProcessor
from congreve.namesrv.routes import RouteTable
from congreve.namesrv.settings_processor import SettingsProcessor
from congreve.remoting.loop.background import BackgroundJobs, BackgroundTask
from congreve.remoting.loop.loop_thread import Lifecycle
from congreve.remoting.loop.pieces import Pieces
from congreve.remoting.tls.certificates import ServerCertificates
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Handler
from congreve.remoting.transport.guard import ConnectionGuard, SharedLimits
from congreve.remoting.transport.server import RemotingServer

logger = logging.getLogger(__name__)

SCAN_S = 10.0
"""Seconds between two scans for silent brokers; the first comes after FIRST_SCAN_S."""
FIRST_SCAN_S = 5.0
ACCOUNTS_S = 1.0
"""How often the name server looks whether files with accounts have changed, in seconds."""


class Access(Protocol):
    """Checks requests before their handlers."""

    async def load(self) -> None:
        """Read the accounts. Raises CongreveError if they cannot be used."""

    async def follow(self) -> None:
        """Read the accounts again if they have changed."""

    def guard(self, handlers: Mapping[int, Handler]) -> Mapping[int, Handler]:
        """The handlers behind the checks."""


async def _follow(access: Access) -> None:
    while True:
        await asyncio.sleep(ACCOUNTS_S)
        await access.follow()


class NameServer(Lifecycle):
    """Serves routes from memory (NamesrvController): ``async with NameServer(port=0) as server``.

    ``with`` runs it on a loop and thread of its own. Port 0 takes any free port. Entering raises
    RemotingError if it cannot listen. RocketMQ's counterpart is NamesrvController.
    Key-value settings are saved through `kv_store`, changes of `config` through `config_store`.
    `limits` are those of all connections together. With `certificates` connections may be
    encrypted, with `access` requests need accounts. `clock` returns seconds for the expiry of
    silent brokers. `listeners` are further addresses to listen on, by name: their clients get the
    addresses that brokers advertise for that name.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 9876,
        kv_store: KvStore | None = None,
        config: NamesrvConfig | None = None,
        config_store: KvStore | None = None,
        limits: SharedLimits | None = None,
        listeners: Mapping[str, tuple[str, int]] | None = None,
        certificates: ServerCertificates | None = None,
        access: Access | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config or NamesrvConfig()
        self.routes = RouteTable(clock, self.config)
        self._pieces = Pieces()
        self.kv = KvConfig(kv_store, self.config)
        self._settings = SettingsProcessor(
            self.kv, self.config, config_store, lambda: self.port, self._pieces
        )
        handlers: Mapping[int, Handler] = self.handlers()
        if access is not None:
            handlers = access.guard(handlers)
        self._access = access
        self._server = RemotingServer(
            handlers,
            host=host,
            port=port,
            guard=ConnectionGuard(limits),
            on_close=self._connection_closed,
            certificates=certificates,
            listeners=listeners,
            lane_name="namesrv",
        )
        self._jobs = BackgroundJobs("removing brokers that are gone", logger)
        self._scan: asyncio.TimerHandle | None = None
        self._following: BackgroundTask | None = None

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._server.port

    @property
    def ports(self) -> Mapping[str, int]:
        """The port of each listener, by name; that of the main one is empty."""
        return self._server.ports

    @property
    def address(self) -> str:
        """The ``host:port`` that it listens on."""
        return f"{self._server.host}:{self._server.port}"

    async def start(self) -> None:
        """Load the settings and listen. Raises ConnectError, BodyError."""
        self._settings.load()
        if self._access is not None:
            await self._access.load()
        await self._server.start()
        if self._access is not None:
            self._following = BackgroundTask(
                "following the accounts' files", partial(_follow, self._access), logger
            )
            self._following.start()
        self._scan_in(FIRST_SCAN_S)

    async def stop(self) -> None:
        if self._scan is not None:
            self._scan.cancel()
            self._scan = None
        if self._following is not None:
            self._following.cancel()
            self._following = None
        await self._server.stop()

    def handlers(self) -> dict[int, Handler]:
        """The handlers of all request codes."""
        return {
            **BrokerProcessor(self.routes, self.kv, self._pieces).handlers(),
            **RouteProcessor(self.routes, self.kv, self.config, self._pieces).handlers(),
            **self._settings.handlers(),
        }

    def _scan_in(self, seconds: float) -> None:
        self._scan = asyncio.get_running_loop().call_later(seconds, self._drop_expired)

    def _drop_expired(self) -> None:
        self._jobs.begin(self._close_silent())
        self._scan_in(SCAN_S)

    async def _close_silent(self) -> None:
        for channel in await self._pieces.run(self.routes.expiry_steps()):
            if isinstance(channel, Connection):
                channel.close()

    def _connection_closed(self, connection: Connection) -> None:
        self._jobs.begin(self._pieces.run(self.routes.closing_steps(connection)))
