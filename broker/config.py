"""The broker's settings: RocketMQ's broker.conf keys as typed fields.

Defaults are those of 4.9.4, except `flushDiskType`, which is SYNC_FLUSH here. Unknown keys are
reported and have no effect. Each field has its range, and when it may change over the network:
`congreve.base.settings`.
"""

import os
import socket
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from itertools import chain
from pathlib import Path
from typing import Annotated

import msgspec

from congreve.base import settings
from congreve.base.settings import INT_MAX, LONG_MAX, Change, Range, Row, Setting, Show
from congreve.broker.config_parts import (
    ConsoleConfig,
    ElectionConfig,
    LakeConfig,
    LimitsConfig,
    PopConfig,
    ReplicationConfig,
    TlsConfig,
    camel,
)
from congreve.broker.errors import ConfigError
from congreve.broker.listeners import advertised_addresses
from congreve.broker.log_levels import parse_log_levels
from congreve.broker.quota_limits import Kind, check_defaults
from congreve.engine.config import StoreConfig
from congreve.engine.errors import StoreError
from congreve.records.message.topics import TRACE_TOPIC
from congreve.remoting.errors import HeaderError
from congreve.remoting.messages.addresses import parse_name_servers
from congreve.remoting.transport.local_address import local_address

PERM_INHERIT = 1
PERM_WRITE = 2
PERM_READ = 4
PERM_PRIORITY = 8

MASTER_ID = 0
MASTER_ROLES = ("ASYNC_MASTER", "SYNC_MASTER")

#: listenPort minus the VIP port (RocketMQ: NettyServerConfig, fastListenPort).
VIP_DISTANCE = 2

# RocketMQ's spelling of these differs from the rule.
_BROKER_KEYS = {"broker_ip1": "brokerIP1", "broker_ip2": "brokerIP2"}

_REPLAY_WINDOW = "aclReplayWindowMills"
"""A setting that promised security and is gone: a broker that wants it must not start without."""


def _broker_key(field: str) -> str:
    return _BROKER_KEYS.get(field, camel(field))


def lanes_for(cores: int) -> int:
    """The threads that serve sends and pulls; clients, the disk and the loop need cores, too."""
    return min(max(cores // 4, 1), 8)


class BrokerConfig(msgspec.Struct, kw_only=True, rename=_broker_key):
    """RocketMQ's BrokerConfig and NettyServerConfig; MessageStoreConfig is in `store`.

    Other parts have the settings of one matter each.

    Times are milliseconds unless the name says otherwise. `listen_port` 0 takes any free port (and
    then there is no VIP port).
    """

    namesrv_addr: str = ""
    """Name servers at which the broker registers, `host:port`, with `;` between them."""
    bind_address: Annotated[str, Show.NEVER] = "0.0.0.0"
    """Address on which the broker listens."""
    listen_port: Annotated[int, Range(0, 65535)] = 10911
    """Port for clients; listenPort - 2 serves everything except pulls, as RocketMQ's VIP port. 0
    takes any free port."""
    listeners: Annotated[str, Show.NEVER] = ""
    """Further addresses to listen on, `NAME=HOST:PORT` with `,` between them:
    [Listeners](operations.md#listeners). Congreve only."""
    advertised_listeners: Annotated[str, Show.NEVER] = ""
    """The address that clients of each further listener connect to, `NAME=HOST:PORT`; without one
    that of `listeners`. Congreve only."""
    grpc_port: Annotated[int, Range(-1, 65535)] = -1
    """Port for clients of RocketMQ 5, which use gRPC, as all other ports of the broker then do; -1
    opens none, 0 takes any free port. Congreve only."""
    broker_ip1: str = msgspec.field(default_factory=local_address)
    """Address or host name that the broker registers, and to which clients connect. By default this
    machine's address."""
    broker_ip2: str = msgspec.field(default_factory=local_address)
    """Address that registrations name for replication. By default this machine's address."""
    broker_name: str = msgspec.field(default_factory=socket.gethostname)
    """Name of this broker in routes. By default this machine's host name."""
    broker_cluster_name: str = "DefaultCluster"
    """Name of its cluster."""
    broker_id: Annotated[int, Range(0, LONG_MAX)] = MASTER_ID
    """0 is the master."""
    broker_role: str = "ASYNC_MASTER"
    """ASYNC_MASTER, SYNC_MASTER or SLAVE: [Replication](replication.md)."""
    broker_permission: Annotated[int, Range(0, 7), Change.NOW] = PERM_READ | PERM_WRITE
    """4 read, 2 write, 6 both."""
    draining: Annotated[bool, Change.NOW] = False
    """Whether routes send producers to other brokers. Requests are answered as before, also sends:
    [Drain](clusters.md#drain). Congreve only."""
    region_id: str = "DefaultRegion"
    """Region that answers to sends name."""
    trace_on: Annotated[bool, Change.AFTER_RESTART] = True
    """Whether answers to sends ask clients to trace."""

    default_topic_queue_nums: Annotated[int, Range(1, 65535), Change.NOW] = 8
    """Most queues of a topic that its first message creates."""
    auto_create_topic_enable: Annotated[bool, Change.NOW] = True
    """Whether a first message creates its topic."""
    auto_create_subscription_group: Annotated[bool, Change.NOW] = True
    """Whether a first heartbeat or pull creates its group."""
    enable_mixed_message_type: Annotated[bool, Change.NOW] = False
    """Whether a topic may have the attribute message.type=MIXED."""
    cluster_topic_enable: bool = True
    """Whether a topic with the cluster's name exists."""
    broker_topic_enable: bool = True
    """Whether a topic with the broker's name exists."""
    trace_topic_enable: Annotated[bool, Change.AFTER_RESTART] = False
    """Whether the trace topic exists from the start."""
    msg_trace_topic_name: str = TRACE_TOPIC
    """Name of the trace topic."""

    start_accept_send_request_time_stamp: Annotated[int, Range(0, LONG_MAX), Change.NOW] = 0
    """Sends are refused before this time (ms since 1970)."""
    reject_transaction_message: Annotated[bool, Change.NOW] = False
    """Refuse half messages."""
    transaction_time_out: Annotated[int, Range(0, INT_MAX), Change.NOW] = 6_000
    """Age in ms from which a half message is checked with its producers."""
    transaction_check_interval: Annotated[int, Range(10, INT_MAX), Change.NOW] = 60_000
    """Time in ms between two rounds of checks."""
    transaction_check_max: Annotated[int, Range(1, INT_MAX), Change.NOW] = 15
    """Checks that are sent for one transaction before it is discarded."""
    store_reply_message_enable: Annotated[bool, Change.NOW] = True
    """Store replies of request-reply as well."""

    long_polling_enable: Annotated[bool, Change.NOW] = True
    """Pulls that find nothing wait for a message."""
    short_polling_time_mills: Annotated[int, Range(1, INT_MAX), Change.NOW] = 1_000
    """How long such pulls wait in ms without long polling."""
    enable_property_filter: Annotated[bool, Change.NOW] = False
    """Allow SQL92 filters."""
    slave_read_enable: Annotated[bool, Change.NOW] = False
    """Refer consumers that are far behind to the broker that their group names for it."""
    notify_consumer_ids_changed_enable: Annotated[bool, Change.NOW] = True
    """Notify the members of a group at once when one joins or leaves."""
    rebalance_lock_max_live_time: Annotated[int, Range(1, INT_MAX), Change.AFTER_RESTART] = 60_000
    """How long in ms an orderly consumer's lock on a queue lasts."""
    flush_consumer_offset_interval: Annotated[int, Range(1, INT_MAX), Change.AFTER_RESTART] = 5_000
    """Time in ms between two writes of consumerOffset.json."""

    force_register: Annotated[bool, Change.NOW] = True
    """Send RocketMQ's name servers all topics each time, also when nothing has changed."""
    compressed_register: Annotated[bool, Change.NOW] = False
    """Compress registrations."""
    register_name_server_period: Annotated[int, Range(1, INT_MAX)] = 30_000
    """Time in ms between two registrations."""
    register_broker_timeout_mills: Annotated[int, Range(1, INT_MAX)] = 6_000
    """How long in ms a registration may take."""
    server_channel_max_idle_time_seconds: Annotated[
        int, Range(1, INT_MAX), Change.AFTER_RESTART
    ] = 120
    """A connection without traffic is closed after this time."""
    network_threads: Annotated[int, Range(0, 63)] = msgspec.field(
        default_factory=lambda: lanes_for(os.cpu_count() or 1)
    )
    """Threads that serve connections, sends and pulls beside the event loop; below 1 means 1. By
    default a quarter of the cores, 1 to 8. Congreve only."""
    poll_micros_after_request: Annotated[int, Range(0, 10_000)] = 100
    """How long in us a lane looks for more requests before it sleeps; 0 sleeps at once. Congreve
    only."""
    event_loop_watchdog_millis: Annotated[int, Range(0, 60_000), Change.AFTER_RESTART] = 0
    """Log whatever holds the event loop for longer than this; 0 turns the watchdog off. Congreve
    only."""
    acl_enable: bool = False
    """Check the signature and the permissions of every request: [Accounts](accounts.md)."""
    acl_folder: Annotated[str, Show.NEVER] = ""
    """Folder of plain_acl.yml and of acl/, whose files have the accounts, and of quotas.yml; empty:
    that of broker.conf. Congreve only."""
    acl_open_name_servers: bool = False
    """Start with `aclEnable` although a name server has no accounts, as RocketMQ's name servers:
    [Accounts](accounts.md#the-name-server). Congreve only."""
    broker_access_key: Annotated[str, Show.NEVER] = ""
    """The account that signs the broker's requests to name servers; empty: they are not signed.
    Congreve only."""
    answer_route_requests: Annotated[bool, Change.AFTER_RESTART] = False
    """Answer clients that take this broker for their name server, with routes of its own topics.
    Congreve only."""

    pair_address: Annotated[str, Show.NEVER] = ""
    """The master of the other machine of a crossed pair, `host` or `host:port`; this broker then
    also runs its slave: [Replication](replication.md#crossed-pairs). Congreve only."""
    pair_broker_name: str = ""
    """brokerName of that master; empty: `broker-HOST-PORT` with `_` for dots, which `congreve run
    --pair` uses. Congreve only."""

    metrics_port: Annotated[int, Range(-1, 65535)] = -1
    """Port for /metrics, /healthz, /readyz and /varz; -1 opens none, 0 takes any free port.
    Congreve only."""
    metrics_address: Annotated[str, Show.NEVER] = "127.0.0.1"
    """Address on which that port listens. Every client that reaches it reads the names of topics,
    groups and clients. Congreve only."""
    metrics_max_series: Annotated[int, Range(1_000, 10_000_000), Change.NOW] = 200_000
    """Most series of one answer; further topics and groups are added up in rows named `other`.
    Congreve only."""
    slow_request_millis: Annotated[int, Range(0, INT_MAX), Change.AFTER_RESTART] = 0
    """Log requests that take longer than this time in ms, and where it went; 0 logs none. Congreve
    only."""
    log_levels: Annotated[str, Change.NOW] = ""
    """Levels of log lines: `INFO`, or by logger `congreve.broker=DEBUG;congreve.engine=INFO`; empty
    leaves them as the command set them. Congreve only."""

    default_topic_quota: Annotated[str, Change.NOW] = ""
    """Quota of each topic without its own, as in `sendMessages=1000,sendBytes=1048576`; empty:
    none: [Quotas](quotas.md). Congreve only."""
    default_group_quota: Annotated[str, Change.NOW] = ""
    """Quota of each group without its own. Congreve only."""
    default_account_quota: Annotated[str, Change.NOW] = ""
    """Quota of each account without its own. Congreve only."""
    default_address_quota: Annotated[str, Change.NOW] = ""
    """Quota of each address of clients without its own. Congreve only."""

    tls: TlsConfig = msgspec.field(default_factory=TlsConfig)
    replication: ReplicationConfig = msgspec.field(default_factory=ReplicationConfig)
    election: ElectionConfig = msgspec.field(default_factory=ElectionConfig)
    console: ConsoleConfig = msgspec.field(default_factory=ConsoleConfig)
    lake: LakeConfig = msgspec.field(default_factory=LakeConfig)
    pops: PopConfig = msgspec.field(default_factory=PopConfig)
    limits: LimitsConfig = msgspec.field(default_factory=LimitsConfig)
    store: StoreConfig = msgspec.field(default_factory=StoreConfig)

    def __post_init__(self) -> None:
        try:
            settings.check(self)
        except ValueError as error:
            raise ConfigError(str(error)) from error
        if self.listen_port and not VIP_DISTANCE < self.listen_port <= 65535:
            raise ConfigError(
                f"listenPort={self.listen_port} is not usable: a broker takes that - "
                f"{VIP_DISTANCE} too; use {VIP_DISTANCE + 1} to 65535, or 0 for any free port"
            )
        if not self.broker_name.strip() or not self.broker_cluster_name.strip():
            raise ConfigError("brokerName and brokerClusterName must not be blank")
        try:
            parse_name_servers(self.namesrv_addr)
        except HeaderError as error:
            raise ConfigError(f"namesrvAddr: {error}") from error
        parse_log_levels(self.log_levels)
        advertised_addresses(self.listeners, self.advertised_listeners)
        check_defaults(self.quota_texts)
        if self.broker_role not in (*MASTER_ROLES, "SLAVE"):
            raise ConfigError(
                f"brokerRole={self.broker_role!r}; use ASYNC_MASTER, SYNC_MASTER or SLAVE"
            )

    @property
    def readable(self) -> bool:
        """Whether brokerPermission allows pulls."""
        return bool(self.broker_permission & PERM_READ)

    @property
    def writable(self) -> bool:
        """Whether brokerPermission allows sends."""
        return bool(self.broker_permission & PERM_WRITE)

    @property
    def is_slave(self) -> bool:
        """Whether brokerRole is SLAVE."""
        return self.broker_role == "SLAVE"

    def account_folder(self, config_path: Path | None) -> str:
        """The folder of the accounts' files: aclFolder, or that of broker.conf; empty without."""
        return self.acl_folder or (str(config_path.parent) if config_path else "")

    @property
    def answers_wait(self) -> bool:
        """Whether answers of sends wait for the disk (SYNC_FLUSH) or a slave (SYNC_MASTER)."""
        return self.store.sync_flush or self.broker_role == "SYNC_MASTER"

    @property
    def address(self) -> str:
        """`ip:port`, as name servers announce it to clients."""
        return f"{self.broker_ip1}:{self.listen_port}"

    @property
    def quota_texts(self) -> dict[str, str]:
        """The default quota of each kind, as in broker.conf."""
        return {kind: getattr(self, f"default_{kind}_quota") for kind in Kind}

    @property
    def advertised(self) -> dict[str, str]:
        """The address `host:port` for clients of each further listener, by name."""
        return advertised_addresses(self.listeners, self.advertised_listeners)

    @property
    def store_host(self) -> tuple[str, int]:
        """The broker's address in stored records and offset message ids.

        Raises ConfigError when brokerIP1 cannot be resolved.
        """
        return ip_of(self.broker_ip1), self.listen_port

    @property
    def serves_grpc(self) -> bool:
        """Not a slave of an elected group: clients find the master behind the next address."""
        follows = self.is_slave and self.election.ha_mode != "classic"
        return self.grpc_port >= 0 and not follows

    @property
    def client_ports(self) -> dict[str, int]:
        """The ports for clients by their settings, without those that the system picks."""
        found: dict[str, int] = {}
        if self.listen_port:
            found["listenPort"] = self.listen_port
            found[f"listenPort - {VIP_DISTANCE}"] = self.listen_port - VIP_DISTANCE
        if self.serves_grpc and self.grpc_port:
            found["grpcPort"] = self.grpc_port
        return found

    @property
    def name_servers(self) -> list[str]:
        """The addresses `host:port` in namesrvAddr, which `;` separates."""
        return parse_name_servers(self.namesrv_addr)

    def changed(self, texts: Mapping[str, str]) -> "BrokerConfig":
        """A copy with other values by the keys of broker.conf; unknown keys are ignored.

        Raises ConfigError for the first value that is not allowed.
        """
        if texts.get(_REPLAY_WINDOW, "0").strip() not in ("", "0"):
            raise ConfigError(
                f"{_REPLAY_WINDOW}={texts[_REPLAY_WINDOW]}: brokers do not tell a request from a "
                "copy of it any more: remove the key, and set tls.server.mode=enforcing in "
                "tlsConfigFile, which keeps others from copying one"
            )
        try:
            values = {name: settings.parse(table, texts) for name, table in TABLES.items()}
            # The log's folder follows the root, unless the file sets it.
            if "root_dir" in values["store"]:
                values["store"] = {"commit_log_dir": "", **values["store"]}
            mine = values.pop("broker")
            parts = {
                name: msgspec.structs.replace(getattr(self, name), **changed)
                for name, changed in values.items()
            }
        except (ValueError, StoreError) as error:
            raise ConfigError(str(error)) from error
        return msgspec.structs.replace(self, **parts, **mine)

    def copy_from(self, other: "BrokerConfig") -> None:
        """Copy the other's values into this object, which running code reads again at each use."""
        for mine, theirs in zip(self._tables(), other._tables(), strict=True):
            for setting in settings.table_of(type(mine)).values():
                setattr(mine, setting.field, getattr(theirs, setting.field))

    def _tables(self) -> Iterator[msgspec.Struct]:
        """This object and its parts."""
        for name in TABLES:
            yield self if name == "broker" else getattr(self, name)

    def apply(self, texts: Mapping[str, str]) -> list[str]:
        """Set fields by the keys of broker.conf; return the unknown keys.

        Raises ConfigError for the first value that is not allowed; then nothing has changed.
        """
        self.copy_from(self.changed(texts))
        return [key for key in texts if key not in all_settings()]

    def as_properties(self) -> dict[str, str]:
        """Every key with its value as text, sorted."""
        texts = (settings.as_texts(table).items() for table in self._tables())
        return dict(sorted(chain.from_iterable(texts)))

    def public_settings(self) -> dict[str, str]:
        """The keys that requests may read, with their values: no path and no secret."""
        table = all_settings()
        return {key: text for key, text in self.as_properties().items() if table[key].shown}


#: The tables of settings, by the name of the part that has them.
TABLES: dict[str, type[msgspec.Struct]] = {
    "broker": BrokerConfig,
    "store": StoreConfig,
    "tls": TlsConfig,
    "replication": ReplicationConfig,
    "election": ElectionConfig,
    "console": ConsoleConfig,
    "lake": LakeConfig,
    "pops": PopConfig,
    "limits": LimitsConfig,
}


@cache
def all_settings() -> Mapping[str, Setting]:
    """All settings of broker.conf that have an effect, by key."""
    tables = (settings.table_of(table).items() for table in TABLES.values())
    return dict(chain.from_iterable(tables))


def setting_rows() -> list[Row]:
    """All settings of broker.conf with what the reference says of them."""
    return [row for name, table in TABLES.items() for row in settings.rows(table, name)]


@lru_cache(maxsize=16)
def ip_of(host: str) -> str:
    """The address of a host; a name is looked up once, as in RocketMQ."""
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except (OSError, UnicodeError) as error:  # a label that is empty or too long
        raise ConfigError(
            f"brokerIP1={host!r} is neither an address nor a known name: {error}"
        ) from error
