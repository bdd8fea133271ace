"""The broker's settings: RocketMQ's broker.conf keys as typed fields.

Defaults are those of 4.9.4, except `flushDiskType`, which is SYNC_FLUSH here. Unknown keys are
reported and have no effect. Each field has its range, and when it may change over the network:
`congreve.base.settings`.
"""

import os
import socket
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated

import msgspec

from congreve.base import settings
from congreve.base.settings import INT_MAX, LONG_MAX, Change, Range, Row, Setting, Show
from congreve.broker.errors import ConfigError
from congreve.broker.ha_frames import FRAME_MAX
from congreve.broker.listeners import advertised_addresses
from congreve.broker.log_levels import parse_log_levels
from congreve.broker.quota_limits import Kind, check_defaults
from congreve.engine.config import StoreConfig
from congreve.engine.errors import StoreError
from congreve.records.message.topics import TRACE_TOPIC
from congreve.remoting.errors import HeaderError
from congreve.remoting.messages.addresses import parse_name_servers
from congreve.remoting.tls.settings import DEFAULT_FILE
from congreve.remoting.transport.guard import SharedLimits
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


def _camel(field: str) -> str:
    first, *others = field.split("_")
    return first + "".join(part.capitalize() for part in others)


def _broker_key(field: str) -> str:
    return _BROKER_KEYS.get(field, _camel(field))


def lanes_for(cores: int) -> int:
    """The threads that serve sends and pulls; clients, the disk and the loop need cores, too."""
    return min(max(cores // 4, 1), 8)


class BrokerConfig(msgspec.Struct, kw_only=True, rename=_broker_key):
    """RocketMQ's BrokerConfig and NettyServerConfig; MessageStoreConfig is in `store`.

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
    """Register at name servers each time, also when nothing has changed."""
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
    """Threads that serve sends and pulls beside the event loop; 0 lets the event loop do it. By
    default a quarter of the cores, 1 to 8. Congreve only."""
    poll_micros_after_request: Annotated[int, Range(0, 10_000)] = 100
    """How long in us the event loop looks for more requests before it sleeps; 0 sleeps at once.
    Congreve only."""
    event_loop_watchdog_millis: Annotated[int, Range(0, 60_000), Change.AFTER_RESTART] = 0
    """Log whatever holds the event loop for longer than this; 0 turns the watchdog off. Congreve
    only."""
    tls_config_file: Annotated[str, Show.NEVER] = DEFAULT_FILE
    """A tls.properties: certificate, key, mode ([TLS](tls.md)); the default one may be missing.
    Congreve only, `tls.config.file` in RocketMQ."""
    tls_server_mode: str = ""
    """`disabled`, `permissive` (with and without TLS) or `enforcing`; empty: as in tls.properties,
    else permissive. Congreve only."""
    tls_server_cert_path: Annotated[str, Show.NEVER] = ""
    """PEM file of the certificate, with those between it and its authority; empty: as in
    tls.properties. Congreve only."""
    tls_server_key_path: Annotated[str, Show.NEVER] = ""
    """PEM file of the certificate's key; its password is `tls.server.keyPassword` in
    tls.properties. Congreve only."""
    tls_server_need_client_auth: str = ""
    """Whether clients must have a certificate: `none`, `optional` or `require`; empty: as in
    tls.properties. Congreve only."""
    tls_server_trust_cert_path: Annotated[str, Show.NEVER] = ""
    """PEM file of the authorities that sign the certificates of clients. Congreve only."""
    tls_handshake_timeout_mills: Annotated[int, Range(1, 600_000)] = 10_000
    """Time in ms after which the broker closes a connection whose handshake is not complete.
    Congreve only."""
    tls_enable: bool = False
    """Whether the broker's own connections to name servers are encrypted, by the keys
    `tls.client.*` of tls.properties. Congreve only, `tls.enable` in RocketMQ."""
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

    ha_listen_port: Annotated[int, Range(-1, 65535)] = 0
    """Port for slaves; 0 is listenPort + 1, as always in RocketMQ, or any free port with listenPort
    0; -1 opens none."""
    ha_master_address: str = ""
    """Where a slave finds its master's HA port, `host:port`; empty: name servers give it."""
    ha_send_heartbeat_interval: Annotated[int, Range(1, INT_MAX)] = 5_000
    """Time in ms after which both ends of the HA port send a heartbeat."""
    ha_housekeeping_interval: Annotated[int, Range(1, INT_MAX)] = 20_000
    """Time in ms of silence after which either end closes the connection."""
    ha_transfer_batch_size: Annotated[int, Range(1, FRAME_MAX)] = 256 << 10
    """Most bytes of the log in one frame; 32768 in RocketMQ."""
    ha_slave_fallbehind_max: Annotated[int, Range(1, LONG_MAX)] = 256 << 20
    """SYNC_MASTER: a send does not wait for slaves that are further behind, in bytes."""
    slave_timeout: Annotated[int, Range(1, INT_MAX), Change.AFTER_RESTART] = 3_000
    """SYNC_MASTER: how long in ms a send waits for a slave."""
    ha_allowed_addresses: str = "*"
    """Addresses that may connect to the HA port, as in plain_acl.yml: `10.1.2.*`, `10.1.2.{3,4}`, a
    list with commas, `*`. Congreve only."""
    ha_login: bool = True
    """Whether a slave with `aclEnable` and `brokerAccessKey` logs in at its master's HA port;
    `false` for a master that is RocketMQ's. Congreve only."""
    ha_old_login: bool = False
    """Whether a slave logs in at its master's HA port as earlier versions do, and a master accepts
    that: for the time of [an upgrade](replication.md#upgrade-a-pair-with-accounts), because such a
    login can be captured and sent again. Congreve only."""
    ha_tls_enable: bool = False
    """Whether the HA port is encrypted, at both ends: a master serves TLS only, with the
    certificate of its other ports, a slave connects by the keys `tls.client.*` of tls.properties
    ([TLS](tls.md#the-port-for-slaves)). Congreve only."""
    ha_tls_need_client_auth: str = ""
    """Whether slaves must have a certificate: `none`, `optional` or `require`; empty: as
    `tls.server.need.client.auth`. Congreve only."""
    ha_mode: str = "classic"
    """Who decides the broker's role: `classic`, this file; `etcd` or `kubernetes`, an
    [election](election.md). Congreve only."""
    etcd_endpoints: str = ""
    """haMode=etcd: etcd's addresses, `http://host:2379` or `https://host:2379`, separated by
    commas. Congreve only."""
    etcd_user: Annotated[str, Show.NEVER] = ""
    """The account of etcd that the members use; its role needs reads and writes below `/congreve/`.
    Empty: none. Congreve only."""
    etcd_password: Annotated[str, Show.NEVER] = ""
    """Its password. Keep it in the file: `--set` shows it to other users of the machine. Congreve
    only."""
    etcd_trust_cert_path: Annotated[str, Show.NEVER] = ""
    """A file of PEM with the authorities that etcd's certificate must come from; empty: those of
    the system. Congreve only."""
    etcd_cert_path: Annotated[str, Show.NEVER] = ""
    """A file of PEM with the members' certificate for etcd; empty: none. Congreve only."""
    etcd_key_path: Annotated[str, Show.NEVER] = ""
    """The key of that certificate. Congreve only."""
    kubernetes_api: str = "https://kubernetes.default.svc"
    """haMode=kubernetes: the address of the API server. Congreve only."""
    kubernetes_namespace: str = ""
    """The namespace of the group's Lease; empty: that of the service account. Congreve only."""
    kubernetes_service_account: Annotated[str, Show.NEVER] = (
        "/var/run/secrets/kubernetes.io/serviceaccount"
    )
    """The folder with the files `token`, `ca.crt` and `namespace` of the service account. Congreve
    only."""
    ha_lease_seconds: Annotated[int, Range(1, 3_600)] = 3
    """Election: how long a master may act without an answer of etcd or Kubernetes. Congreve
    only."""
    min_in_sync_replicas: Annotated[int, Range(1, 64)] = 1
    """Election: how many members must have a message before it is acknowledged; of RocketMQ 5."""
    ha_max_time_slave_not_catchup: Annotated[int, Range(1, INT_MAX)] = 15_000
    """Election: time in ms after which a slave that is behind leaves the in-sync set; of RocketMQ
    5."""
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

    console_port: Annotated[int, Range(0, 65535)] = 0
    """Port of the [web console](console.md), which a process beside the broker serves; 0: none. It
    needs namesrvAddr. Congreve only."""
    console_address: Annotated[str, Show.NEVER] = "127.0.0.1"
    """Address that the console listens on. Congreve only."""
    console_hosts: str = ""
    """Further host names that browsers use for the console, separated by `;`. Congreve only."""
    console_cert_path: Annotated[str, Show.NEVER] = ""
    """PEM file with the console's certificate, for https. Congreve only."""
    console_key_path: Annotated[str, Show.NEVER] = ""
    """PEM file with the certificate's key. Congreve only."""
    console_hide_bodies: bool = False
    """Whether the console shows the sizes of messages' bodies instead of the bodies. Congreve
    only."""
    console_bodies_for: str = ""
    """consoleHideBodies=true: access keys that see bodies nevertheless, separated by `;`. Congreve
    only."""
    console_audit_log: Annotated[str, Show.NEVER] = ""
    """File to which the console appends what its users change; empty: none. Congreve only."""

    lake_topics: str = ""
    """Topics that a process beside the broker copies into tables, separated by `;`: [Topics as
    tables](lake.md). Congreve only."""
    lake_warehouse: Annotated[str, Show.NEVER] = ""
    """The folder of the tables, or the warehouse of lakeCatalog; lakeTopics needs it. Congreve
    only."""
    lake_catalog: Annotated[str, Show.NEVER] = ""
    """URI of a SQL or REST catalog; empty: SQLite in the folder lakeWarehouse. Congreve only."""
    lake_properties: Annotated[str, Show.NEVER] = ""
    """Properties of pyiceberg, `KEY=VALUE` separated by `;`. Other users of the machine see them:
    pass secrets in environment variables. Congreve only."""
    lake_partition: str = "day"
    """Unit of store time for the partitions of new tables: day or hour. Congreve only."""
    lake_bodies: Annotated[str, Show.NEVER] = ""
    """Topics whose bodies become columns, `TOPIC=FORMAT:FILE` separated by `;`: format json or
    avro, and the file of the schema: [Bodies as columns](lake.md#bodies-as-columns). Congreve
    only."""
    lake_drop_bodies: bool = False
    """New tables of lakeBodies have no column of whole bodies. lakeRetention needs them. Congreve
    only."""
    lake_lag_millis: Annotated[int, Range(1_000, INT_MAX)] = 60_000
    """Time in ms in which an acknowledged message should be in its table. The store writes a
    checkpoint every third of it, if flushConsumeQueueThoroughInterval is longer. Congreve only."""
    lake_commit_bytes: Annotated[int, Range(1 << 20, LONG_MAX)] = 512 << 20
    """Bytes of columns in a commit, before compression: the most that a file has. Congreve only."""
    lake_retention: bool = False
    """Retention keeps what no table has, and pulls and queries below the log's beginning are
    answered from tables: [Reads beyond retention](lake.md#reads-beyond-retention). Congreve
    only."""
    lake_read_bytes: Annotated[int, Range(1 << 20, LONG_MAX)] = 128 << 20
    """Memory in bytes for messages that were read from tables. Congreve only."""

    max_topics: Annotated[int, Range(1, INT_MAX), Change.NOW] = 200_000
    """Most topics. Congreve only."""
    max_groups: Annotated[int, Range(1, INT_MAX), Change.NOW] = 100_000
    """Most groups of each kind: in subscriptionGroup.json, with consumers online, with producers
    online. Congreve only."""
    max_group_members: Annotated[int, Range(1, INT_MAX), Change.NOW] = 10_000
    """Most members of one group. Congreve only."""
    max_group_subscriptions: Annotated[int, Range(1, INT_MAX), Change.NOW] = 10_000
    """Most topics to which one group subscribes. Congreve only."""
    max_queue_locks: Annotated[int, Range(1, INT_MAX), Change.NOW] = 200_000
    """Most locks of queues for orderly consumers; a client has at most 20,000. Congreve only."""
    max_memberships: Annotated[int, Range(1, INT_MAX), Change.NOW] = 1_000_000
    """Most members of all groups together, for consumers and for producers. Congreve only."""
    max_subscription_bytes: Annotated[int, Range(1, LONG_MAX), Change.NOW] = 256 << 20
    """Memory for the subscriptions of groups with consumers online. Congreve only."""
    max_filter_bytes: Annotated[int, Range(1, LONG_MAX), Change.NOW] = 64 << 20
    """Memory for SQL92 filters; those of groups that left are dropped first. Congreve only."""
    max_consumer_offsets: Annotated[int, Range(1, INT_MAX), Change.NOW] = 2_000_000
    """Most queues for which groups together keep offsets. Congreve only."""

    default_topic_quota: Annotated[str, Change.NOW] = ""
    """Quota of each topic without its own, as in `sendMessages=1000,sendBytes=1048576`; empty:
    none: [Quotas](quotas.md). Congreve only."""
    default_group_quota: Annotated[str, Change.NOW] = ""
    """Quota of each group without its own. Congreve only."""
    default_account_quota: Annotated[str, Change.NOW] = ""
    """Quota of each account without its own. Congreve only."""
    default_address_quota: Annotated[str, Change.NOW] = ""
    """Quota of each address of clients without its own. Congreve only."""

    max_connections: Annotated[int, Range(0, INT_MAX)] = 0
    """Most connections; 0: as many as the limit of open files allows. Congreve only."""
    max_connections_per_address: Annotated[int, Range(0, INT_MAX)] = 0
    """Most connections from one address; further ones are closed at once. 0: no limit. Congreve
    only."""
    max_unfinished_frame_bytes: Annotated[int, Range(1, LONG_MAX)] = 256 << 20
    """Memory for incomplete requests, of all connections together. Congreve only."""
    first_frame_timeout_mills: Annotated[int, Range(1, INT_MAX)] = 30_000
    """The first request of a connection must be complete within this time in ms after it was
    opened, and one second for each 32 KiB: silent connections are closed. Congreve only."""
    frame_timeout_mills: Annotated[int, Range(1, INT_MAX)] = 30_000
    """A request must be complete within this time in ms, and one second for each 32 KiB. Congreve
    only."""
    max_unread_answer_bytes: Annotated[int, Range(1, LONG_MAX)] = 128 << 20
    """Memory for answers that clients have not read, and for requests at work or behind them, of
    all connections together. Congreve only."""

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
        if self.lake_topics and not self.lake_warehouse:
            raise ConfigError(
                f"lakeTopics={self.lake_topics!r} needs lakeWarehouse: a folder, or the "
                "warehouse of lakeCatalog"
            )
        if self.lake_retention and not self.lake_topics:
            raise ConfigError("lakeRetention=true needs lakeTopics: the topics that tables get")
        if self.lake_retention and self.lake_drop_bodies:
            raise ConfigError(
                "lakeRetention=true needs whole bodies in the tables: set lakeDropBodies=false"
            )
        if self.lake_partition not in ("day", "hour"):
            raise ConfigError(f"lakePartition={self.lake_partition!r}; use day or hour")

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
        return _ip_of(self.broker_ip1), self.listen_port

    @property
    def shared_limits(self) -> SharedLimits:
        """The limits that all connections share."""
        return SharedLimits(
            connections=self.max_connections,
            connections_of_address=self.max_connections_per_address,
            unfinished_bytes=self.max_unfinished_frame_bytes,
            unread_bytes=self.max_unread_answer_bytes,
            first_frame_timeout_s=self.first_frame_timeout_mills / 1000,
            frame_timeout_s=self.frame_timeout_mills / 1000,
        )

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
            mine = settings.parse(BrokerConfig, texts)
            theirs = settings.parse(StoreConfig, texts)
            # The log's folder follows the root, unless the file sets it.
            if "root_dir" in theirs:
                theirs = {"commit_log_dir": "", **theirs}
            store = msgspec.structs.replace(self.store, **theirs)
        except (ValueError, StoreError) as error:
            raise ConfigError(str(error)) from error
        return msgspec.structs.replace(self, store=store, **mine)

    def copy_from(self, other: "BrokerConfig") -> None:
        """Copy the other's values into this object, which running code reads again at each use."""
        for mine, theirs in ((self.store, other.store), (self, other)):
            for setting in settings.table_of(type(mine)).values():
                setattr(mine, setting.field, getattr(theirs, setting.field))

    def apply(self, texts: Mapping[str, str]) -> list[str]:
        """Set fields by the keys of broker.conf; return the unknown keys.

        Raises ConfigError for the first value that is not allowed; then nothing has changed.
        """
        self.copy_from(self.changed(texts))
        return [key for key in texts if key not in all_settings()]

    def as_properties(self) -> dict[str, str]:
        """Every key with its value as text, sorted."""
        return dict(sorted((settings.as_texts(self.store) | settings.as_texts(self)).items()))

    def public_settings(self) -> dict[str, str]:
        """The keys that requests may read, with their values: no path and no secret."""
        table = all_settings()
        return {key: text for key, text in self.as_properties().items() if table[key].shown}


def all_settings() -> dict[str, Setting]:
    """All settings of broker.conf that have an effect, by key."""
    return settings.table_of(StoreConfig) | settings.table_of(BrokerConfig)


def setting_rows() -> list[Row]:
    """All settings of broker.conf with what the reference says of them."""
    return [*settings.rows(BrokerConfig, "broker"), *settings.rows(StoreConfig, "store")]


@lru_cache(maxsize=16)
def _ip_of(host: str) -> str:
    """The address of a host; a name is looked up once, as in RocketMQ."""
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except (OSError, UnicodeError) as error:  # a label that is empty or too long
        raise ConfigError(
            f"brokerIP1={host!r} is neither an address nor a known name: {error}"
        ) from error
