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
from congreve.base.settings import INT_MAX, LONG_MAX, Change, Range, Setting, Show
from congreve.broker.errors import ConfigError
from congreve.broker.listeners import advertised_addresses
from congreve.broker.log_levels import parse_log_levels
from congreve.broker.quotas.limits import Kind, check_defaults
from congreve.broker.replication.frames import FRAME_MAX
from congreve.engine.config import StoreConfig
from congreve.engine.errors import StoreError
from congreve.records.message.topics import TRACE_TOPIC
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
    bind_address: Annotated[str, Show.NEVER] = "0.0.0.0"
    listen_port: Annotated[int, Range(0, 65535)] = 10911
    # Congreve: further listeners, and their addresses in routes (remoting/messages/listeners.py).
    listeners: Annotated[str, Show.NEVER] = ""
    advertised_listeners: Annotated[str, Show.NEVER] = ""
    broker_ip1: str = msgspec.field(default_factory=local_address)
    broker_ip2: str = msgspec.field(default_factory=local_address)
    broker_name: str = msgspec.field(default_factory=socket.gethostname)
    broker_cluster_name: str = "DefaultCluster"
    broker_id: Annotated[int, Range(0, LONG_MAX)] = MASTER_ID
    broker_role: str = "ASYNC_MASTER"
    broker_permission: Annotated[int, Range(0, 7), Change.NOW] = PERM_READ | PERM_WRITE
    region_id: str = "DefaultRegion"
    trace_on: Annotated[bool, Change.AFTER_RESTART] = True

    default_topic_queue_nums: Annotated[int, Range(1, 65535), Change.NOW] = 8
    auto_create_topic_enable: Annotated[bool, Change.NOW] = True
    auto_create_subscription_group: Annotated[bool, Change.NOW] = True
    cluster_topic_enable: bool = True
    broker_topic_enable: bool = True
    trace_topic_enable: Annotated[bool, Change.AFTER_RESTART] = False
    msg_trace_topic_name: str = TRACE_TOPIC

    start_accept_send_request_time_stamp: Annotated[int, Range(0, LONG_MAX), Change.NOW] = 0
    reject_transaction_message: Annotated[bool, Change.NOW] = False
    transaction_time_out: Annotated[int, Range(0, INT_MAX), Change.NOW] = 6_000
    transaction_check_interval: Annotated[int, Range(10, INT_MAX), Change.NOW] = 60_000
    transaction_check_max: Annotated[int, Range(1, INT_MAX), Change.NOW] = 15
    store_reply_message_enable: Annotated[bool, Change.NOW] = True

    long_polling_enable: Annotated[bool, Change.NOW] = True
    short_polling_time_mills: Annotated[int, Range(1, INT_MAX), Change.NOW] = 1_000
    enable_property_filter: Annotated[bool, Change.NOW] = False
    slave_read_enable: Annotated[bool, Change.NOW] = False
    notify_consumer_ids_changed_enable: Annotated[bool, Change.NOW] = True
    # rocketmq.broker.rebalance.lockMaxLiveTime
    rebalance_lock_max_live_time: Annotated[int, Range(1, INT_MAX), Change.AFTER_RESTART] = 60_000
    flush_consumer_offset_interval: Annotated[int, Range(1, INT_MAX), Change.AFTER_RESTART] = 5_000

    force_register: Annotated[bool, Change.NOW] = True
    compressed_register: Annotated[bool, Change.NOW] = False
    register_name_server_period: Annotated[int, Range(1, INT_MAX)] = 30_000
    register_broker_timeout_mills: Annotated[int, Range(1, INT_MAX)] = 6_000
    server_channel_max_idle_time_seconds: Annotated[
        int, Range(1, INT_MAX), Change.AFTER_RESTART
    ] = 120
    # Congreve: threads that serve sends and pulls (remoting/lanes); 0: the event loop does it.
    network_threads: Annotated[int, Range(0, 63)] = msgspec.field(
        default_factory=lambda: lanes_for(os.cpu_count() or 1)
    )
    # Congreve: see remoting/transport/busy_poll.py; 0 sleeps at once.
    poll_micros_after_request: Annotated[int, Range(0, 10_000)] = 100
    # Congreve: log a callback that blocks the event loop for longer; 0: off
    # (remoting/transport/watchdog.py).
    event_loop_watchdog_millis: Annotated[int, Range(0, 60_000), Change.AFTER_RESTART] = 0
    # Congreve, instead of JVM properties of the same meaning; see broker/tls.py. Passwords of keys
    # are in the file only.
    tls_config_file: Annotated[str, Show.NEVER] = DEFAULT_FILE
    tls_server_mode: str = ""
    tls_server_cert_path: Annotated[str, Show.NEVER] = ""
    tls_server_key_path: Annotated[str, Show.NEVER] = ""
    tls_server_need_client_auth: str = ""
    tls_server_trust_cert_path: Annotated[str, Show.NEVER] = ""
    tls_handshake_timeout_mills: Annotated[int, Range(1, 600_000)] = 10_000
    # The broker's own connections to name servers are encrypted (tls.enable).
    tls_enable: bool = False
    acl_enable: bool = False
    # Congreve: the folder of plain_acl.yml and of acl/; empty: that of broker.conf.
    acl_folder: Annotated[str, Show.NEVER] = ""
    # Congreve: start although a name server has no accounts (broker/accounts/open_name_servers.py).
    acl_open_name_servers: bool = False
    # Congreve: how long after it was signed a request passes, once; 0: any number of times
    # (broker/accounts/replays.py).
    acl_replay_window_mills: Annotated[int, Range(0, 3_600_000)] = 0
    # Congreve: the account whose signature the broker's own requests carry; empty: none.
    broker_access_key: Annotated[str, Show.NEVER] = ""
    # Congreve: clients may use the broker as their name server (it serves GET_ROUTEINFO_BY_TOPIC).
    answer_route_requests: Annotated[bool, Change.AFTER_RESTART] = False

    # 0: listenPort + 1, as in RocketMQ, or any free port with listenPort 0; -1: no port.
    ha_listen_port: Annotated[int, Range(-1, 65535)] = 0
    ha_master_address: str = ""
    ha_send_heartbeat_interval: Annotated[int, Range(1, INT_MAX)] = 5_000
    ha_housekeeping_interval: Annotated[int, Range(1, INT_MAX)] = 20_000
    ha_transfer_batch_size: Annotated[int, Range(1, FRAME_MAX)] = 256 << 10
    # SYNC_MASTER: bytes that slaves may be behind, and how long a send waits for one.
    ha_slave_fallbehind_max: Annotated[int, Range(1, LONG_MAX)] = 256 << 20
    slave_timeout: Annotated[int, Range(1, INT_MAX), Change.AFTER_RESTART] = 3_000
    # Congreve: addresses that may connect to the HA port: a pattern like those of plain_acl.yml.
    ha_allowed_addresses: str = "*"
    # Congreve: a slave with accounts logs in at the HA port; off for a master that is RocketMQ's.
    ha_login: bool = True
    # Congreve: the login of earlier versions, until both brokers of a pair are upgraded.
    ha_old_login: bool = False
    # Congreve: the HA port has TLS only, with the certificates of broker/tls.py; at both ends.
    ha_tls_enable: bool = False
    # Congreve: tls_server_need_client_auth of the HA port; empty: the same.
    ha_tls_need_client_auth: str = ""
    # Congreve: what decides the role: this file (classic), or an election (etcd, kubernetes;
    # broker/election).
    ha_mode: str = "classic"
    etcd_endpoints: str = ""
    etcd_user: Annotated[str, Show.NEVER] = ""
    etcd_password: Annotated[str, Show.NEVER] = ""
    etcd_trust_cert_path: Annotated[str, Show.NEVER] = ""
    etcd_cert_path: Annotated[str, Show.NEVER] = ""
    etcd_key_path: Annotated[str, Show.NEVER] = ""
    kubernetes_api: str = "https://kubernetes.default.svc"
    kubernetes_namespace: str = ""
    kubernetes_service_account: Annotated[str, Show.NEVER] = (
        "/var/run/secrets/kubernetes.io/serviceaccount"
    )
    ha_lease_seconds: Annotated[int, Range(1, 3_600)] = 3
    min_in_sync_replicas: Annotated[int, Range(1, 64)] = 1
    ha_max_time_slave_not_catchup: Annotated[int, Range(1, INT_MAX)] = 15_000
    # Congreve: the master of the other machine of a crossed pair (broker/pair.py), host or
    # host:port, and its name; empty: broker-HOST-PORT with `_` for dots.
    pair_address: Annotated[str, Show.NEVER] = ""
    pair_broker_name: str = ""

    # Congreve: metrics and health over HTTP (broker/metrics); -1: no port, 0: any free port.
    metrics_port: Annotated[int, Range(-1, 65535)] = -1
    metrics_address: Annotated[str, Show.NEVER] = "127.0.0.1"
    metrics_max_series: Annotated[int, Range(1_000, 10_000_000), Change.NOW] = 200_000
    # Congreve: log requests that take longer (broker/slow_requests.py); 0: none.
    slow_request_millis: Annotated[int, Range(0, INT_MAX), Change.AFTER_RESTART] = 0
    # Congreve: see broker/log_levels.py; empty leaves the levels as they are.
    log_levels: Annotated[str, Change.NOW] = ""

    # Congreve: the web console (broker/console_process.py); 0: none.
    console_port: Annotated[int, Range(0, 65535)] = 0
    console_address: Annotated[str, Show.NEVER] = "127.0.0.1"
    console_hosts: str = ""
    console_cert_path: Annotated[str, Show.NEVER] = ""
    console_key_path: Annotated[str, Show.NEVER] = ""
    console_hide_bodies: bool = False
    console_bodies_for: str = ""
    console_audit_log: Annotated[str, Show.NEVER] = ""

    # Congreve: topics as tables (broker/lake_process.py), separated by ";"; empty: none.
    lake_topics: str = ""
    lake_warehouse: Annotated[str, Show.NEVER] = ""
    lake_catalog: Annotated[str, Show.NEVER] = ""
    lake_properties: Annotated[str, Show.NEVER] = ""
    lake_partition: str = "day"
    # TOPIC=FORMAT:FILE for topics whose bodies become columns.
    lake_bodies: Annotated[str, Show.NEVER] = ""
    lake_drop_bodies: bool = False
    lake_lag_millis: Annotated[int, Range(1_000, INT_MAX)] = 60_000
    lake_commit_bytes: Annotated[int, Range(1 << 20, LONG_MAX)] = 512 << 20
    # Retention deletes segments that tables have, and reads below the log's beginning use the
    # tables.
    lake_retention: bool = False
    # Memory for messages that were read from tables.
    lake_read_bytes: Annotated[int, Range(1 << 20, LONG_MAX)] = 128 << 20

    # Congreve: limits of the tables that grow with clients' requests.
    max_topics: Annotated[int, Range(1, INT_MAX), Change.NOW] = 200_000
    # Of each kind: in subscriptionGroup.json, with consumers online, with producers online.
    max_groups: Annotated[int, Range(1, INT_MAX), Change.NOW] = 100_000
    max_group_members: Annotated[int, Range(1, INT_MAX), Change.NOW] = 10_000
    max_group_subscriptions: Annotated[int, Range(1, INT_MAX), Change.NOW] = 10_000
    # Of all groups together; a client has at most 20,000.
    max_queue_locks: Annotated[int, Range(1, INT_MAX), Change.NOW] = 200_000
    # Connections in groups, of all groups together: of consumers, of producers.
    max_memberships: Annotated[int, Range(1, INT_MAX), Change.NOW] = 1_000_000
    # Memory of the subscriptions of all groups with consumers online.
    max_subscription_bytes: Annotated[int, Range(1, LONG_MAX), Change.NOW] = 256 << 20
    # Memory of SQL92 filters. Those of groups without members count, and are dropped first.
    max_filter_bytes: Annotated[int, Range(1, LONG_MAX), Change.NOW] = 64 << 20
    # Queues of all groups together.
    max_consumer_offsets: Annotated[int, Range(1, INT_MAX), Change.NOW] = 2_000_000

    # Congreve: the quota of each name without one of its own (broker/quotas); empty: no limit.
    default_topic_quota: Annotated[str, Change.NOW] = ""
    default_group_quota: Annotated[str, Change.NOW] = ""
    default_account_quota: Annotated[str, Change.NOW] = ""
    default_address_quota: Annotated[str, Change.NOW] = ""

    # Congreve, for all connections together: see remoting/transport/guard.py.
    # 0: as many as the limit of open files allows.
    max_connections: Annotated[int, Range(0, INT_MAX)] = 0
    max_connections_per_address: Annotated[int, Range(0, INT_MAX)] = 0
    max_unfinished_frame_bytes: Annotated[int, Range(1, LONG_MAX)] = 256 << 20
    first_frame_timeout_mills: Annotated[int, Range(1, INT_MAX)] = 30_000
    frame_timeout_mills: Annotated[int, Range(1, INT_MAX)] = 30_000
    max_unread_answer_bytes: Annotated[int, Range(1, LONG_MAX)] = 128 << 20

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
        return [part.strip() for part in self.namesrv_addr.split(";") if part.strip()]

    def changed(self, texts: Mapping[str, str]) -> "BrokerConfig":
        """A copy with other values by the keys of broker.conf; unknown keys are ignored.

        Raises ConfigError for the first value that is not allowed.
        """
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


@lru_cache(maxsize=16)
def _ip_of(host: str) -> str:
    """The address of a host; a name is looked up once, as in RocketMQ."""
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except (OSError, UnicodeError) as error:  # a label that is empty or too long
        raise ConfigError(
            f"brokerIP1={host!r} is neither an address nor a known name: {error}"
        ) from error
