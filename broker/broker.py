"""The broker, composed of its parts (RocketMQ: BrokerController)."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Self, Unpack

from congreve.base.clock import Clock
from congreve.broker.admin.runtime_info import RuntimeInfo, runtime_info_of
from congreve.broker.assembly.access import Access
from congreve.broker.assembly.housekeeping import Housekeeping
from congreve.broker.assembly.monitors import Monitors
from congreve.broker.assembly.ports import Ports
from congreve.broker.assembly.processors import all_handlers
from congreve.broker.broker_conf import BrokerSettings, keyword_texts, load_config
from congreve.broker.coalesced import Coalesced
from congreve.broker.config import BrokerConfig
from congreve.broker.errors import BrokerError, ConfigError
from congreve.broker.managers import Managers
from congreve.broker.processes.beside import Beside
from congreve.broker.pull.archive import OpenArchive, checked_archive
from congreve.broker.reachable import unreachable
from congreve.broker.registration import NameServerRegistration
from congreve.broker.replication.replication import Replication
from congreve.broker.serving.message_paths import MessagePaths
from congreve.broker.tls import client_ssl
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.state.state_file import DISK, FileSystem
from congreve.engine.store import Backend, MessageStore
from congreve.remoting.loop.background import to_thread_whole
from congreve.remoting.loop.loop_thread import Lifecycle
from congreve.remoting.transport.dispatcher import Handler

logger = logging.getLogger(__name__)


class Broker(Lifecycle):
    """One broker: a store, its listeners and its registration at the name servers.

    RocketMQ: BrokerController.

    ``async with Broker(config)`` runs on the caller's event loop, ``with Broker(config)`` on a
    separate thread with its own loop. The config is copied. Clients connect to `address`. Starting
    raises StoreError, BrokerError or RemotingError when it fails, and stops what it has started.
    """

    unknown_keys: tuple[str, ...] = ()
    """Keys without effect in the file that from_conf() read."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        config_path: Path | None = None,
        clock: Clock | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        backend: Backend | None = None,
        files: FileSystem = DISK,
        on_ready: Callable[["Broker"], None] | None = None,
        replication: Callable[..., Replication] | None = None,
        archive: OpenArchive | None = None,
    ) -> None:
        self.config = _own(config)
        self._beside = Beside(self.config)
        self._clock = clock or Clock()
        self._on_ready = on_ready
        self._config_path = config_path
        self._archive = checked_archive(self.config, archive)
        self.store = MessageStore(
            self.config.store,
            clock=self._clock,
            backend=backend,
            files=files,
            on_arrival=self._arrived,
            exported_topics=self._beside.exported_topics if archive else None,
        )
        self.managers = Managers(self.config, self.store, self._clock, monotonic)
        self.ports = Ports(self.config, self.managers)
        """Where clients connect to."""
        self._access = Access(
            self.config,
            self._config_path,
            self.store,
            self._clock,
            self.ports.guard.peer_log,
            self._accounts_changed,
        )
        if self._access.control is not None:
            self.managers.members.producers.may_check = self._access.control.may_check
        sign, own_ssl = self._access.sign, client_ssl(self.config)
        make = self._check_mode() if replication is None else replication
        self.replication = make(
            self.config, self.managers, self._arrived, sign, own_ssl, self._access.ha_login()
        )
        self._registration = NameServerRegistration(
            self.config,
            self.managers.metadata.topics,
            self.managers.pieces,
            sign,
            own_ssl,
            ha_address=lambda: self.replication.ha_address,
            note_master=self.replication.note_master,
        )
        self._paths: MessagePaths | None = None
        self._monitors = Monitors(self.config, self.managers, self.ports.guard, self._access.quotas)
        self._started = False
        self._housekeeping = Housekeeping(self.config, self.managers, self.ports)
        self._periodic = (
            *self._housekeeping.periodic(),
            *self._access.periodic(),
            *self._monitors.periodic(),
        )

    @classmethod
    def from_conf(cls, path: str | Path, **settings: Unpack[BrokerSettings]) -> Self:
        """A broker with the settings of a broker.conf (RocketMQ: ``mqbroker -c``), not started yet.

        `settings` are further keys, which override the file. Settings that administrators change
        at run time are written to the file. `unknown_keys` has the keys of the file that have no
        effect. Raises ConfigError for a file that cannot be read, for a value that is not allowed
        (with its line), and for an unknown key in `settings`.
        """
        loaded = load_config(path, keyword_texts(settings))
        broker = cls(loaded.config, config_path=Path(path))
        broker.unknown_keys = tuple(key for _, key in loaded.unknown)
        return broker

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        return self.config.listen_port

    @property
    def address(self) -> str:
        """`ip:port`, as name servers announce it."""
        return self.config.address

    async def start(self) -> None:
        """Open the store, listen and register; when a step fails, undo all of them."""
        if self._started:
            raise BrokerError("a broker can start only once: create a new Broker with its config")
        self.ports.check()
        self._beside.check()
        self._started = True
        self.store.on_shown = Coalesced(self._shown)
        self._monitors.set_log_levels()
        for key, why in unreachable(self.config):
            logger.warning("%s: %s", key, why)
        try:
            self._monitors.metrics.listen()
            await self._access.load()
            await to_thread_whole(partial(self.store.start, follows=self.config.is_slave))
            self.replication.take_role()
            await self.managers.load()
            self.managers.stats.sample()
            self._access.compile()
            self._paths = self._housekeeping.paths = MessagePaths(
                self.managers,
                self._arrived,
                self._access.quotas.table,
                self.replication.confirm,
                self._access.control,
                self._archive,
                rpc_times=self._monitors.metrics.rpc_times,
                slow=self._monitors.slow,
            )
            state = self.replication.state
            runtime_info = runtime_info_of(self.managers, self._paths, self.ports.guard, state)
            handlers = self._handlers(self._paths, runtime_info)
            await self.ports.listen(
                self._paths, handlers, self._access.control, compiled=self._access.is_compiled
            )
            await self.replication.start()
            await self._registration.start()
            for periodic in self._periodic:
                periodic.start()
            self._monitors.serve(self._paths, runtime_info)
            self._beside.start()
            await self.managers.start()  # last: delivery of due messages needs the event loop
        except BaseException:
            await self.stop()
            raise
        logger.info("broker %s ready at %s", self.config.broker_name, self.address)
        if self._on_ready is not None:
            self._on_ready(self)

    async def stop(self) -> None:
        """Stop serving, save the state in memory and close the store. Idempotent."""
        self._monitors.note_stopping()
        self.managers.pops.note_stopping()
        for periodic in self._periodic:
            periodic.stop()
        self._beside.end()
        await self._registration.stop()
        await self.ports.stop()
        await self.replication.stop()
        await self.managers.stop()
        await self._beside.stop()
        await asyncio.to_thread(self.store.close)
        await self._monitors.close()

    def _handlers(self, paths: MessagePaths, runtime_info: RuntimeInfo) -> Mapping[int, Handler]:
        handlers = all_handlers(
            self.managers,
            paths,
            self._config_path,
            self._config_changed,
            self._registration.registered_everywhere,
            self._registration.route,
            runtime_info,
            self._access.control,
            self.replication.state,
            self.replication.copies,
        )
        return self._monitors.handlers.watch(self._access.guard(handlers))

    def _check_mode(self) -> type[Replication]:
        """Replication in a role that does not change. Raises ConfigError for another haMode."""
        if self.config.election.ha_mode != "classic":
            raise ConfigError(
                f"haMode={self.config.election.ha_mode}: only `congreve broker` runs that"
            )
        return Replication

    def _arrived(self, queue: ConsumeQueue) -> None:
        self.managers.delayed.arrived(queue)
        self.managers.pops.arrived(queue)
        self.managers.lites.arrived(queue)
        if self._paths is not None:
            self._paths.notify(queue)

    def _shown(self) -> None:
        self.managers.delayed.shown()
        self.managers.pops.shown()
        self.managers.lites.shown()
        self.managers.shown.look()
        if self._paths is not None:
            self._paths.show_more()

    async def _config_changed(self, keys: set[str]) -> None:
        self.managers.transactions.config_changed()
        self.managers.delayed.config_changed()
        if self._paths is not None:
            self._paths.pulls.validation.plans.note_change()
            self.managers.pops.plans.note_change()
        if keys & {"brokerPermission", "draining", "startAcceptSendRequestTimeStamp"}:
            await self.managers.pieces.run(self.managers.metadata.topics.notify_steps())
            # The answer says that routes have it, as after RocketMQ's registerBrokerAll().
            await self._registration.registered_everywhere()
        if "logLevels" in keys:
            self._monitors.set_log_levels()
        self._access.quotas.set_defaults()
        if "defaultTopicQueueNums" in keys:
            self.managers.metadata.topics.resize_template()

    async def _accounts_changed(self) -> None:
        assert self._access.control is not None, "accounts change with access control"
        if self._paths is not None:
            self._paths.recheck_pulls()


def _own(config: BrokerConfig) -> BrokerConfig:
    """A copy for one broker, which changes it."""
    own = config.changed({})
    if own.network_threads < 1:
        logger.warning("networkThreads=%d: a broker has at least 1", own.network_threads)
        own.network_threads = 1
    return own
