"""Access control of one broker: its accounts, their files, and the gate (RocketMQ:
PlainAccessValidator)."""

from collections.abc import Awaitable, Callable, Mapping

from congreve.base.clock import Clock
from congreve.broker.accounts.account_table import AccountTable
from congreve.broker.accounts.accounts import Account, Accounts, Kind, Need, Perm, topic_need
from congreve.broker.accounts.audit import AuditLog
from congreve.broker.accounts.files import AccountFiles
from congreve.broker.accounts.followed import FollowedAccounts
from congreve.broker.accounts.gate import Gate
from congreve.broker.accounts.requests import rules
from congreve.broker.errors import ConfigError
from congreve.broker.group.clients import Channel, ClientChannel
from congreve.engine.store import MessageStore
from congreve.records.message.message import Record
from congreve.records.message.topics import NOT_FOR_CONSUMERS
from congreve.records.record import decode_record
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.signature import ACCESS_KEY, Credentials
from congreve.remoting.signatures.hmac_sha1 import load_sha1
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Handler
from congreve.remoting.transport.peer_log import PeerLog


class AccessControl:
    """Loads the accounts, follows their files, and checks requests.

    It awaits `changed` after the accounts have changed, because allowed requests may be forbidden
    now.
    Only administrators read `reply_topic`, and where brokers park messages.
    `own_key` is the access key with which the broker signs its own requests; empty: it does not.
    (RocketMQ: PlainAccessValidator.)
    """

    def __init__(
        self,
        files: AccountFiles,
        store: MessageStore,
        clock: Clock,
        peer_log: PeerLog,
        *,
        own_key: str,
        changed: Callable[[], Awaitable[None]],
        reply_topic: str,
    ) -> None:
        self.files = files
        self._followed = FollowedAccounts(files, self._take_changes)
        self._store = store
        self._own_key = own_key
        self._changed = changed
        self._sha1 = load_sha1()
        self.table: AccountTable | None = None
        """The accounts for compiled code, once the store is open."""
        self._private = NOT_FOR_CONSUMERS | {reply_topic}
        table = rules(self._find, self._private)
        self._gate = Gate(lambda: self.accounts, table, AuditLog(clock), peer_log)

    @property
    def accounts(self) -> Accounts:
        """The current accounts."""
        return self._followed.now

    @property
    def own_account(self) -> Account | None:
        """The account with which the broker signs its own requests."""
        return self.accounts.by_key.get(self._own_key)

    async def load(self) -> None:
        """Read the files before the broker serves. Raises ConfigError if no request could pass."""
        await self._followed.load()
        if self._own_key and self.own_account is None:
            raise ConfigError(f"brokerAccessKey={self._own_key} is not an account of the files")

    @property
    def can_compile(self) -> bool:
        """Whether compiled code can check requests: OpenSSL's SHA-1 is within its reach."""
        return self._sha1 is not None

    def compile(self) -> None:
        """Make the table for compiled code; the store is open."""
        if self._sha1 is not None:
            self.table = AccountTable(self._sha1, self._private)
            self._fill(self.table)

    def guard(self, handlers: Mapping[int, Handler]) -> dict[int, Handler]:
        """The handlers behind the gate. Raises BrokerError for a code without a rule."""
        return self._gate.guard(handlers)

    def refusal(self, request: RemotingCommand, connection: Connection) -> RemotingCommand | None:
        """The answer to a request that may not pass (any more); None when it may."""
        return self._gate.refusal(request, connection)

    def may_check(self, producer: ClientChannel, group: str, topic: str) -> bool:
        """Whether a member of a producer group may get its checks of transactions with a topic.

        A gRPC client has no group: its name is that of the topic.
        """
        needs = [topic_need(topic, Perm.PUB)]
        if not producer.is_grpc:
            needs.append(Need(Kind.GROUP, group, Perm.PUB))
        return self._allows(producer.access_key, producer.connection, *needs)

    def may_write(self, request: RemotingCommand, connection: Connection, topic: str) -> bool:
        """Whether the sender of a checked request may write to a topic."""
        key = request.ext_fields.get(ACCESS_KEY)
        return self._allows(key, connection, topic_need(topic, Perm.PUB))

    def _allows(self, access_key: str | None, connection: Channel, *needs: Need) -> bool:
        address = connection.peer[0]
        if self.accounts.is_white(address):
            return True
        account = self.accounts.by_key.get(access_key or "")
        return account is not None and account.lacks(needs, address) is None

    def sign(self, request: RemotingCommand) -> None:
        """Sign a request of the broker itself, if it has an account."""
        account = self.own_account
        if account is not None:
            Credentials(access_key=self._own_key, secret_key=account.secret_key).sign(request)

    async def follow(self) -> None:
        """Read the files again if they have changed; a file that cannot be used is logged and
        ignored."""
        await self._followed.follow()

    async def edit(self, change: Callable[[AccountFiles], None]) -> None:
        """Change the files and read them again. Raises ConfigError or StoreError."""
        await self._followed.edit(change)

    async def _take_changes(self) -> None:
        if self.table is not None:
            self._fill(self.table)
        await self._changed()

    def _fill(self, table: AccountTable) -> None:
        """The event loop serves accounts with grants: compiled code knows whole names only."""
        table.replace(each for each in self.accounts.by_key.values() if not each.grants)

    def _find(self, physical_offset: int) -> Record | None:
        found = self._store.read(physical_offset)
        return None if found is None else decode_record(found, verify_crc=False)
