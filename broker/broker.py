"""The broker, composed of its parts (RocketMQ: BrokerController)."""

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from congreve.base.clock import Clock
from congreve.base.steps import freed
from congreve.broker.accounts.access_control import AccessControl
from congreve.broker.accounts.files import AccountFiles
from congreve.broker.accounts.open_name_servers import refuse_open_name_servers
from congreve.broker.accounts.requests import NOT_ON_VIP, QUOTAS
from congreve.broker.admin.runtime_info import RuntimeInfo
from congreve.broker.admin.settings import ConfigAdminProcessor
from congreve.broker.broker_conf import keyword_texts, load_config
from congreve.broker.coalesced import Coalesced
from congreve.broker.config import VIP_DISTANCE, BrokerConfig
from congreve.broker.error_responses import answer_errors
from congreve.broker.errors import BrokerError, ConfigError
from congreve.broker.fastpath.settings import host_bytes
from congreve.broker.figures.message_counts import TopicCounts
from congreve.broker.figures.slow_requests import SlowRequests
from congreve.broker.figures.stats import SAMPLE_INTERVAL_S
from congreve.broker.listeners import check_ports, with_ports
from congreve.broker.log_levels import LogLevels
from congreve.broker.managers import Managers
from congreve.broker.message_paths import MessagePaths
from congreve.broker.metadata.topics import reply_topic
from congreve.broker.metrics.service import MetricsService
from congreve.broker.processes.console_process import console_process
from congreve.broker.processes.lake_process import lake_process, parts_of
from congreve.broker.processes.side_process import SideProcess
from congreve.broker.processors import all_handlers, runtime_info_of
from congreve.broker.pull.archive import OpenArchive, checked_archive
from congreve.broker.quotas.gate import QuotaGate
from congreve.broker.quotas.quota_file import QuotaFile
from congreve.broker.quotas.quotas import Quotas
from congreve.broker.registration import NameServerRegistration
from congreve.broker.replication.login import HaLogin
from congreve.broker.replication.replication import Replication
from congreve.broker.tls import client_ssl, server_certificates
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.state.state_file import DISK, FileSystem
from congreve.engine.store import Backend, MessageStore
from congreve.remoting.loop.background import to_thread_whole
from congreve.remoting.loop.loop_thread import Lifecycle
from congreve.remoting.loop.periodic import Periodic
from congreve.remoting.loop.watchdog import Watchdog, logged_holds
from congreve.remoting.messages.addresses import host_port
from congreve.remoting.messages.listeners import parse_addresses
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Handler
from congreve.remoting.transport.guard import ConnectionGuard
from congreve.remoting.transport.server import RemotingServer, ServerLimits

logger = logging.getLogger(__name__)

HOUSEKEEPING_S = 10
SLOW_REQUESTS_S = 1
ACCOUNTS_S = 1
"""How often the broker looks whether files with accounts or quotas have changed, in seconds."""
FOLD_S = 1
"""How old topics.json and subscriptionGroup.json may be beside their journals, in seconds."""
_VIP = "VIP port"
"""The name of its listener, which no listener of broker.conf can have."""


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
        self._lake = lake_process(self.config)
        self._beside: list[SideProcess] = []
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
            exported_topics=parts_of(self.config.lake.topics) if archive else None,
        )
        self.managers = Managers(self.config, self.store, self._clock, monotonic)
        self._guard = ConnectionGuard(self.config.limits.shared)
        self._access = self._access_control(files) if self.config.acl_enable else None
        sign = None if self._access is None else self._access.sign
        if self._access is not None:
            self.managers.members.producers.may_check = self._access.may_check
        self._certificates, own_ssl = server_certificates(self.config), client_ssl(self.config)
        self._quotas = Quotas(self.config, self._quota_file(files), self._access is not None)
        make = self._check_mode() if replication is None else replication
        self.replication = make(
            self.config, self.managers, self._arrived, sign, own_ssl, self._ha_login()
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
        self._server: RemotingServer | None = None
        limit_ms = self.config.event_loop_watchdog_millis
        self._watchdog = Watchdog(limit_ms / 1000, logged_holds()) if limit_ms else None
        self._metrics = MetricsService(
            self.config, self.managers, self._guard, self._watchdog, self._quotas
        )
        limit_ms = self.config.slow_request_millis
        self._slow = SlowRequests(limit_ms / 1000) if limit_ms else None
        self._log_levels = LogLevels()
        self._started = False
        self._replaced: list[ConsumeQueue | TopicCounts] = []
        self._periodic = (
            Periodic(HOUSEKEEPING_S, self._housekeep),
            Periodic(SAMPLE_INTERVAL_S, self._sample),
            Periodic(self.config.flush_consumer_offset_interval / 1000, self.managers.save_offsets),
            Periodic(FOLD_S, self.managers.files.fold),
            *([] if self._access is None else [Periodic(ACCOUNTS_S, self._access.follow)]),
            Periodic(ACCOUNTS_S, self._quotas.follow),
            *([] if self._slow is None else [Periodic(SLOW_REQUESTS_S, self._slow.note_chunks)]),
        )

    @classmethod
    def from_conf(cls, path: str | Path, **settings: object) -> Self:
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
        _, port = self.config.store_host  # raises ConfigError for a bad address
        check_ports(self.config.bind_address, (port, port - VIP_DISTANCE) if port else ())
        self._beside = [each for each in (self._lake, console_process(self.config)) if each]
        self._started = True
        self.store.on_shown = Coalesced(self._shown)
        self._log_levels.apply(self.config.log_levels)
        try:
            self._metrics.listen()
            if self._access is not None:
                await self._access.load()
                await refuse_open_name_servers(self.config)
            await self._quotas.load()
            await to_thread_whole(self.store.start)
            self.replication.take_role()
            await self.managers.load()
            self.managers.stats.sample()
            if self._access is not None:
                self._access.compile()
            self._paths = MessagePaths(
                self.managers,
                self._arrived,
                self._quotas.table,
                self.replication.confirm,
                self._access,
                self._archive,
                rpc_times=self._metrics.rpc_times,
                slow=self._slow,
            )
            state = self.replication.state
            runtime_info = runtime_info_of(self.managers, self._paths, self._guard, state)
            await self._listen(self._paths, runtime_info)
            await self.replication.start()
            await self._registration.start()
            for periodic in self._periodic:
                periodic.start()
            if self._watchdog is not None:
                self._watchdog.start()
            self._metrics.serve(self._paths, runtime_info)
            for process in self._beside:
                process.start()
            await self.managers.start()  # last: delivery of due messages needs the event loop
        except BaseException:
            await self.stop()
            raise
        logger.info("broker %s ready at %s", self.config.broker_name, self.address)
        if self._on_ready is not None:
            self._on_ready(self)

    async def stop(self) -> None:
        """Stop serving, save the state in memory and close the store. Idempotent."""
        self._metrics.note_stopping()
        for periodic in self._periodic:
            periodic.stop()
        if self._watchdog is not None:
            self._watchdog.stop()
        for process in self._beside:
            process.end()
        await self._registration.stop()
        if self._server is not None:
            await self._server.stop(None if self._paths is None else self._paths.dismiss_pulls)
            self._server = None
        await self.replication.stop()
        await self.managers.stop()
        for process in self._beside:
            await asyncio.to_thread(process.stop)
        await asyncio.to_thread(self.store.close)
        await self._metrics.close()
        self._log_levels.restore()

    def _handlers(self, paths: MessagePaths, runtime_info: RuntimeInfo) -> dict[int, Handler]:
        return all_handlers(
            self.managers,
            paths,
            ConfigAdminProcessor(
                self.config,
                self._config_path,
                self._config_changed,
                self._clock,
                self.store.files,
            ),
            self._registration.registered_everywhere,
            runtime_info,
            self._access,
            self.replication.state,
            self.replication.copies,
        )

    def _access_control(self, files: FileSystem) -> AccessControl:
        config = self.config
        if not config.acl_folder and self._config_path is None:
            raise ConfigError("aclEnable=true needs aclFolder: there is no broker.conf")
        folder = config.acl_folder or str((self._config_path or Path()).parent)
        access = AccessControl(
            AccountFiles(folder, self._clock, files),
            self.store,
            self._clock,
            self._guard.peer_log,
            own_key=config.broker_access_key,
            changed=self._accounts_changed,
            reply_topic=reply_topic(config),
        )
        if not access.can_compile:
            logger.warning("OpenSSL's SHA-1 is out of reach: the event loop serves all requests")
        return access

    def _quota_file(self, files: FileSystem) -> QuotaFile | None:
        folder = self.config.acl_folder or (self._config_path and self._config_path.parent)
        return QuotaFile(str(folder), files) if folder else None

    def _check_mode(self) -> type[Replication]:
        """Replication in a role that does not change. Raises ConfigError for another haMode."""
        if self.config.election.ha_mode != "classic":
            raise ConfigError(
                f"haMode={self.config.election.ha_mode}: only `congreve broker` runs that"
            )
        return Replication

    def _ha_login(self) -> HaLogin | None:
        access = self._access
        if access is None:
            return None
        return HaLogin(
            lambda: access.own_account,
            lambda: access.accounts,
            self._clock,
            lambda: self.store.identity,
            old_form=self.config.replication.old_login,
        )

    async def _listen(self, paths: MessagePaths, runtime_info: RuntimeInfo) -> None:
        config = self.config
        handlers = answer_errors(self._handlers(paths, runtime_info))
        handlers = QuotaGate(self._quotas.table, self.store.record_size).guard(handlers, QUOTAS)
        if self._access is not None:
            handlers = self._access.guard(handlers)
        if config.metrics_port >= 0:
            handlers = self._metrics.rpc_times.watch(handlers)
        if self._slow is not None:
            handlers = self._slow.watch(handlers)
        listeners = {
            name: host_port(address) for name, address in parse_addresses(config.listeners).items()
        }
        if config.listen_port:
            paths.leave_to_handlers(1 + len(listeners))
            listeners[_VIP] = config.bind_address, config.listen_port - VIP_DISTANCE
        if not self._paths_check():
            paths.leave_to_handlers(*range(1 + len(listeners)))
        vip = {code: handler for code, handler in handlers.items() if code not in NOT_ON_VIP}
        self._server = RemotingServer(
            handlers,
            host=config.bind_address,
            port=config.listen_port,
            listeners=listeners,
            handlers_of={_VIP: vip},
            sink=paths.fast_path if self._paths_check() else None,
            lane_sinks=paths.lanes,
            lane_entry=paths.lane_entry,
            limits=ServerLimits(
                idle_timeout_s=config.server_channel_max_idle_time_seconds,
                poll_s=config.poll_micros_after_request / 1e6,
            ),
            guard=self._guard,
            on_close=self._connection_closed,
            certificates=self._certificates,
        )
        await self._server.start()
        config.advertised_listeners = with_ports(config.advertised, self._server.ports)
        if config.listen_port == 0:
            config.listen_port = self._server.port
            paths.set_store_host(host_bytes(config.store_host))

    def _paths_check(self) -> bool:
        """Whether compiled code checks the requests that it serves, or nothing is to be checked."""
        return self._access is None or self._access.table is not None

    def _arrived(self, queue: ConsumeQueue) -> None:
        self.managers.delayed.arrived(queue)
        if self._paths is not None:
            self._paths.notify(queue)

    def _shown(self) -> None:
        self.managers.delayed.shown()
        if self._paths is not None:
            self._paths.show_more()

    def _connection_closed(self, connection: Connection) -> None:
        assert self._paths is not None, "connections come after the paths"
        held = self._paths.pulls.long_polling.closing_steps(connection)
        self.managers.members.connection_closed(connection, held)

    async def _config_changed(self, keys: set[str]) -> None:
        self.managers.transactions.config_changed()
        self.managers.delayed.config_changed()
        if self._paths is not None:
            self._paths.pulls.validated_pulls.note_change()
        if keys & {"brokerPermission", "startAcceptSendRequestTimeStamp"}:
            await self.managers.pieces.run(self.managers.metadata.topics.notify_steps())
        if "logLevels" in keys:
            self._log_levels.apply(self.config.log_levels)
        self._quotas.set_defaults()
        if "defaultTopicQueueNums" in keys:
            self.managers.metadata.topics.resize_template()

    async def _accounts_changed(self) -> None:
        assert self._access is not None, "accounts change with access control"
        if self._paths is not None:
            await self._paths.recheck_pulls(self._access)

    async def _housekeep(self) -> None:
        await self.managers.pieces.run(self.managers.members.locks.expiry_steps())
        if self._paths is not None:
            self._paths.pulls.path.release_segments()
            # Kept here, because the broker may stop while a lane still uses one of them.
            self._replaced.extend(self._paths.topics.take_retired())
            if self._replaced and self._server is not None:
                await self._server.lanes_passed()
            await self.managers.pieces.run(freed(self._replaced))
        await self.managers.members.close_silent()

    async def _sample(self) -> None:
        await self.managers.pieces.run(self.managers.stats.sample_steps())


def _own(config: BrokerConfig) -> BrokerConfig:
    """A copy for one broker, which changes it."""
    own = config.changed({})
    if own.network_threads < 1:
        logger.warning("networkThreads=%d: a broker has at least 1", own.network_threads)
        own.network_threads = 1
    return own
