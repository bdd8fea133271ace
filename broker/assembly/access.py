"""Who may use a broker, and how much: accounts, quotas, and the login of slaves."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from congreve.base.clock import Clock
from congreve.broker.accounts.access_control import AccessControl
from congreve.broker.accounts.files import AccountFiles
from congreve.broker.accounts.open_name_servers import refuse_open_name_servers
from congreve.broker.accounts.requests import QUOTAS
from congreve.broker.config import BrokerConfig
from congreve.broker.errors import ConfigError
from congreve.broker.metadata.topics import reply_topic
from congreve.broker.quotas.gate import QuotaGate
from congreve.broker.quotas.quota_file import QuotaFile
from congreve.broker.quotas.quotas import Quotas
from congreve.broker.replication.login import HaLogin
from congreve.engine.store import MessageStore
from congreve.remoting.loop.periodic import Periodic
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.dispatcher import Handler
from congreve.remoting.transport.peer_log import PeerLog

logger = logging.getLogger(__name__)

FILES_S = 1
"""How often the broker looks whether files with accounts or quotas have changed, in seconds."""


class Access:
    """What stands before the handlers of one broker (RocketMQ: BrokerController's RPC hooks).

    `control` is None without aclEnable; it awaits `changed` after the accounts have changed.
    Raises ConfigError when there is no folder for the files of accounts.
    """

    def __init__(
        self,
        config: BrokerConfig,
        config_path: Path | None,
        store: MessageStore,
        clock: Clock,
        peer_log: PeerLog,
        changed: Callable[[], Awaitable[None]],
    ) -> None:
        self._config = config
        self._store = store
        self._clock = clock
        folder = config.account_folder(config_path)
        self.control: AccessControl | None = None
        if config.acl_enable:
            if not folder:
                raise ConfigError("aclEnable=true needs aclFolder: there is no broker.conf")
            self.control = AccessControl(
                AccountFiles(folder, clock, store.files),
                store,
                clock,
                peer_log,
                own_key=config.broker_access_key,
                changed=changed,
                reply_topic=reply_topic(config),
            )
            if not self.control.can_compile:
                logger.warning(
                    "OpenSSL's SHA-1 is out of reach: the event loop serves all requests"
                )
        quota_file = QuotaFile(folder, store.files) if folder else None
        self.quotas = Quotas(config, quota_file, self.control is not None)

    @property
    def sign(self) -> Callable[[RemotingCommand], None] | None:
        """Signs a request of the broker itself; None without accounts."""
        return None if self.control is None else self.control.sign

    @property
    def is_compiled(self) -> bool:
        """Whether compiled code checks the requests that it serves, or nothing is to be checked."""
        return self.control is None or self.control.table is not None

    def ha_login(self) -> HaLogin | None:
        """What slaves log in with at a broker with accounts; None without accounts."""
        control = self.control
        if control is None:
            return None
        return HaLogin(
            lambda: control.own_account,
            lambda: control.accounts,
            self._clock,
            lambda: self._store.identity,
            old_form=self._config.replication.old_login,
        )

    async def load(self) -> None:
        """Read the files before the broker serves. Raises ConfigError."""
        if self.control is not None:
            await self.control.load()
            await refuse_open_name_servers(self._config)
        await self.quotas.load()

    def compile(self) -> None:
        """Make the accounts' table for compiled code; the store is open."""
        if self.control is not None:
            self.control.compile()

    def guard(self, handlers: Mapping[int, Handler]) -> Mapping[int, Handler]:
        """The handlers behind the gates. Raises BrokerError for a code without a rule."""
        limited = QuotaGate(self.quotas.table, self._store.record_size).guard(handlers, QUOTAS)
        return limited if self.control is None else self.control.guard(limited)

    def periodic(self) -> tuple[Periodic, ...]:
        """Follows the files while the broker runs."""
        follow = Periodic(FILES_S, self.quotas.follow)
        if self.control is None:
            return (follow,)
        return Periodic(FILES_S, self.control.follow), follow
