"""Replication of one broker: the HA port of a master, or a slave's place at its master."""

import asyncio
import logging
import ssl as tls
from collections.abc import Callable

from congreve.broker.config import BrokerConfig
from congreve.broker.errors import BrokerError
from congreve.broker.managers import Managers
from congreve.broker.repair.log_repair import LogRepair
from congreve.broker.replication.ha_connector import HaConnector
from congreve.broker.replication.ha_service import HAService
from congreve.broker.replication.login import HaLogin
from congreve.broker.replication.master_requests import MasterRequests
from congreve.broker.replication.repair_link import RepairLink
from congreve.broker.replication.settings import ReplicationSettings, replication_settings
from congreve.broker.replication.slave import MasterAddress, Slave
from congreve.broker.replication.slave_synchronize import SlaveSynchronize
from congreve.broker.replication.state import ReplicationState
from congreve.broker.replication.table_copies import TableCopies
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.replication.confirm_offset import ConfirmOffset
from congreve.engine.state.confirmed import ConfirmedFile
from congreve.remoting.loop.background import BackgroundTask
from congreve.remoting.loop.periodic import Periodic
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.client import RemotingClient

logger = logging.getLogger(__name__)

SYNCHRONIZE_S = 0.8
"""How often a slave copies its master's tables, in seconds: with the time that a copy takes, they
are at most a second old."""
NO_PORT = -1
SLAVE_REFUSAL = "this broker is a slave: send to its master"
HA_DISTANCE = 1
"""The HA port minus listenPort, unless haListenPort says otherwise."""


class Replication:
    """The replication of one broker; the store is open between start() and stop().

    `arrived` gets queues with watchers whose entries came from a master. `sign` gets each request
    to a master first, `ssl` encrypts them, with `login` slaves log in.
    Raises TlsError for a certificate of the HA port that cannot be used.
    (RocketMQ: HAService, SlaveSynchronize of BrokerController.)
    """

    only_shown = False
    """Whether a slave takes no offset of its master beyond what it shows itself."""

    def __init__(
        self,
        config: BrokerConfig,
        managers: Managers,
        arrived: Callable[[ConsumeQueue], None],
        sign: Callable[[RemotingCommand], None] | None = None,
        ssl: tls.SSLContext | None = None,
        login: HaLogin | None = None,
    ) -> None:
        self._config = config
        self._settings = replication_settings(config)
        self._managers = managers
        self._store = store = managers.store
        self._arrived = arrived
        self._sign = sign
        self._ssl = ssl
        self._login = login
        self.confirm = ConfirmOffset(
            store.backend,
            waits_for_disk=config.store.sync_flush,
            waits_for_slaves=config.broker_role == "SYNC_MASTER",
            behind_max=config.replication.slave_fallbehind_max,
        )
        derived = config.replication.listen_port == 0 and config.listen_port != 0
        self._derived_port = config.listen_port + HA_DISTANCE if derived else 0
        self._service: HAService | None = None
        self._slave: Slave | None = None
        self._tables: SlaveSynchronize | None = None
        self._copying = asyncio.Lock()
        self._synchronize: Periodic | None = None
        self._client: RemotingClient | None = None
        self._master: MasterAddress | None = None
        self._following: BackgroundTask | None = None  # a changed certificate
        expected = config.broker_role != "ASYNC_MASTER"
        self.repair = LogRepair(store, has_copies=expected)
        """What is damaged in this log, and brokers with a copy of it."""
        self._repair_link: RepairLink | None = None
        self.copies = TableCopies(
            managers.metadata,
            self._required_members,
            lambda: store.log.max_offset,
            self._copying_members,
        )
        """The slaves that copy this master's topics and groups."""

    @property
    def ha_address(self) -> str:
        """`host:port` for slaves, as registrations name it; port 0 without a HA port."""
        port = 0 if self._service is None else self._service.port
        return f"{self._config.broker_ip2}:{port}"

    def note_master(self, ha: str, broker: str) -> None:
        """Take the master's addresses of a name server's answer; haMasterAddress precedes them."""
        config = self._config
        if config.is_slave and broker and (ha or config.replication.master_address):
            master = MasterAddress(config.replication.master_address or ha, broker)
            if master != self._master and self._slave is not None:
                self._slave.master_known()
            self._master = master

    def take_role(self) -> None:
        """Let the store of a slave refuse messages, before anything may append.

        Raises StoreError.
        """
        self._set_shown()
        if self._config.is_slave:
            self._store.health.set_role(SLAVE_REFUSAL)

    def _set_shown(self) -> None:
        """Set up to where readers see the log: all of it, without an election."""
        ConfirmedFile(self._config.store.own_dir).remove()

    async def start(self) -> None:
        """Listen for slaves, or follow the master. Raises BrokerError for a port in use."""
        settings, loop = self._settings, asyncio.get_running_loop()
        self.repair.start()
        self._store.repairs.await_record = self.repair.await_record
        if not self._config.is_slave:
            self._service = self._new_service(settings)
            self._listen(self._service)
            self.copies.start()
            self._managers.files.copy_tables(self.copies.copied)
            if settings.certificates is not None:
                self._following = BackgroundTask(
                    "following the HA port's certificate",
                    settings.certificates.keep_following,
                    logger,
                )
                self._following.start()
            return

        def arrived(queues: set[ConsumeQueue]) -> None:
            loop.call_soon_threadsafe(self._notify, queues)

        self._client = RemotingClient(before_request=self._sign, ssl=self._ssl)
        self._slave = self._new_slave(settings, self._client, arrived, self._own_login)
        self._slave.start()
        self._repair_link = RepairLink(self._slave, self._requests, self.connector(), self.repair)
        self._repair_link.start()
        self._tables = SlaveSynchronize(
            self._managers.metadata,
            self._managers.delayed,
            self._store,
            self._requests,
            self._slave.remove_topic,
            self._is_copy,
            only_shown=self.only_shown,
        )
        self._synchronize = Periodic(SYNCHRONIZE_S, self._follow_tables)
        self._synchronize.start()

    def connector(self) -> HaConnector:
        """What connects to another broker's HA port, and logs in there."""
        return HaConnector(self._settings.client_ssl, self._own_login)

    @property
    def _own_login(self) -> HaLogin | None:
        return self._login if self._config.replication.login else None

    async def _follow_tables(self) -> None:
        """Copy the master's tables, and again at each change if the master says when."""
        while await self.copy_tables() and await self._tables_change():
            pass

    async def _tables_change(self) -> bool:
        return self._tables is not None and await self._tables.wait_for_change(self._member)

    async def copy_tables(self) -> bool:
        """Let a slave copy its master's tables now; whether it has."""
        async with self._copying:
            return self._tables is not None and await self._tables.run()

    async def stop(self) -> None:
        """Stop both roles; idempotent."""
        self.copies.close()
        if self._repair_link is not None:
            await self._repair_link.stop()
        await self.repair.stop()
        if self._following is not None:
            self._following.cancel()
        if self._service is not None:
            self._service.stop()
        if self._synchronize is not None:
            self._synchronize.stop()
        if self._slave is not None:
            await self._slave.stop()
        if self._tables is not None:
            self._tables.settle_offsets()  # this broker may be the next master
        if self._client is not None:
            await self._client.close()
            self._client = None

    def state(self) -> ReplicationState:
        """What replication does now."""
        slaves = [] if self._service is None else self._service.slaves()
        following = None if self._slave is None else self._slave.following
        return ReplicationState(
            self._config.broker_role,
            slaves,
            "" if following is None else following.ha,
            "" if self._slave is None else self._slave.trouble,
            behind_max=self._config.replication.slave_fallbehind_max,
            repairs=self.repair.peers,
        )

    @property
    def _member(self) -> int:
        """This broker's number at its master."""
        return self._config.broker_id

    def _is_copy(self) -> bool:
        """Whether this log is a copy of the master's, or is empty.

        A master that lost its disk, for example, has empty tables.
        """
        log = self._store.log
        follows = self._slave is not None and self._slave.following is not None
        return follows or log.max_offset == log.min_offset

    def _required_members(self) -> frozenset[int] | None:
        """The members that must have a change of topics or groups before its answer.

        No slave: none takes over by itself.
        """
        return frozenset()

    def _copying_members(self) -> frozenset[int]:
        """The members of an elected group whose slaves copy this master's log."""
        return frozenset()

    def _new_service(self, settings: ReplicationSettings) -> HAService:
        return HAService(
            self._store, self.confirm, settings, self._login, repair=self.repair.accept
        )

    def _new_slave(
        self,
        settings: ReplicationSettings,
        client: RemotingClient,
        arrived: Callable[[set[ConsumeQueue]], None],
        login: HaLogin | None,
    ) -> Slave:
        return Slave(self._store, settings, self._find_master, client, arrived, login)

    def _listen(self, service: HAService) -> None:
        config = self._config
        if config.replication.listen_port == NO_PORT:
            return
        derived = self._derived_port
        try:
            service.listen(config.bind_address, derived or config.replication.listen_port)
        except BrokerError as error:
            # A broker without slaves needs no HA port, so it must not fail for a port that its
            # settings do not name.
            if not derived or config.broker_role == "SYNC_MASTER":
                raise
            logger.warning("no slave can follow this broker: %s", error)

    def _find_master(self) -> MasterAddress | None:
        """The master; without a name server its broker's port is next to its HA port."""
        address = self._config.replication.master_address
        if self._master is not None or not address:
            return self._master
        host, _, port = address.rpartition(":")
        return MasterAddress(address, f"{host}:{int(port) - HA_DISTANCE}")

    def _requests(self) -> MasterRequests | None:
        master = self._find_master()
        if master is None or self._client is None:
            return None
        return MasterRequests(self._client, master.broker)

    def _notify(self, queues: set[ConsumeQueue]) -> None:
        for queue in queues:
            self._arrived(queue)
