"""Parts of broker.conf: the settings of one matter each, which `BrokerConfig` holds."""

from collections.abc import Callable
from typing import Annotated

import msgspec

from congreve.base import settings
from congreve.base.settings import INT_MAX, LONG_MAX, Change, Range, Show
from congreve.broker.errors import ConfigError
from congreve.broker.ha_frames import FRAME_MAX
from congreve.engine.pop.limits import PopLimits
from congreve.remoting.messages.pop_bodies import REQUEST_MODES
from congreve.remoting.tls.settings import DEFAULT_FILE
from congreve.remoting.transport.guard import SharedLimits


def camel(words: str) -> str:
    """RocketMQ's spelling of a field's name."""
    first, *others = words.split("_")
    return first + "".join(word.capitalize() for word in others)


def _after(prefix: str) -> Callable[[str], str]:
    return lambda field: camel(f"{prefix}_{field}")


class Part(msgspec.Struct, kw_only=True, rename=camel):
    """A part of broker.conf. Raises ConfigError for a value that cannot work."""

    def __post_init__(self) -> None:
        try:
            settings.check(self)
        except ValueError as error:
            raise ConfigError(str(error)) from error


class TlsConfig(Part, rename=_after("tls")):
    """Encryption of the broker's ports and of its own connections. (RocketMQ: TlsSystemConfig.)"""

    config_file: Annotated[str, Show.NEVER] = DEFAULT_FILE
    """A tls.properties: certificate, key, mode ([TLS](tls.md)); the default one may be missing.
    Congreve only, `tls.config.file` in RocketMQ."""
    server_mode: str = ""
    """`disabled`, `permissive` (with and without TLS) or `enforcing`; empty: as in tls.properties,
    else permissive. Congreve only."""
    server_cert_path: Annotated[str, Show.NEVER] = ""
    """PEM file of the certificate, with those between it and its authority; empty: as in
    tls.properties. Congreve only."""
    server_key_path: Annotated[str, Show.NEVER] = ""
    """PEM file of the certificate's key; its password is `tls.server.keyPassword` in
    tls.properties. Congreve only."""
    server_need_client_auth: str = ""
    """Whether clients must have a certificate: `none`, `optional` or `require`; empty: as in
    tls.properties. Congreve only."""
    server_trust_cert_path: Annotated[str, Show.NEVER] = ""
    """PEM file of the authorities that sign the certificates of clients. Congreve only."""
    handshake_timeout_mills: Annotated[int, Range(1, 600_000)] = 10_000
    """Time in ms after which the broker closes a connection whose handshake is not complete.
    Congreve only."""
    enable: bool = False
    """Whether the broker's own connections to name servers are encrypted, by the keys
    `tls.client.*` of tls.properties. Congreve only, `tls.enable` in RocketMQ."""


class ReplicationConfig(Part, rename=_after("ha")):
    """The port for slaves, at both ends. (RocketMQ: MessageStoreConfig.)"""

    listen_port: Annotated[int, Range(-1, 65535)] = 0
    """Port for slaves; 0 is listenPort + 1, as always in RocketMQ, or any free port with listenPort
    0; -1 opens none."""
    master_address: str = ""
    """Where a slave finds its master's HA port, `host:port`; empty: name servers give it."""
    send_heartbeat_interval: Annotated[int, Range(1, INT_MAX)] = 5_000
    """Time in ms after which both ends of the HA port send a heartbeat."""
    housekeeping_interval: Annotated[int, Range(1, INT_MAX)] = 20_000
    """Time in ms of silence after which either end closes the connection."""
    transfer_batch_size: Annotated[int, Range(1, FRAME_MAX)] = 256 << 10
    """Most bytes of the log in one frame; 32768 in RocketMQ."""
    slave_fallbehind_max: Annotated[int, Range(1, LONG_MAX)] = 256 << 20
    """SYNC_MASTER: a send does not wait for slaves that are further behind, in bytes."""
    slave_timeout: Annotated[int, Range(1, INT_MAX), Change.AFTER_RESTART] = msgspec.field(
        name="slaveTimeout", default=3_000
    )
    """SYNC_MASTER: how long in ms a send waits for a slave."""
    allowed_addresses: str = "*"
    """Addresses that may connect to the HA port, as in plain_acl.yml: `10.1.2.*`, `10.1.2.{3,4}`, a
    list with commas, `*`. Congreve only."""
    login: bool = True
    """Whether a slave with `aclEnable` and `brokerAccessKey` logs in at its master's HA port;
    `false` for a master that is RocketMQ's. Congreve only."""
    old_login: bool = False
    """Whether a slave logs in at its master's HA port as earlier versions do, and a master accepts
    that: for the time of [an upgrade](replication.md#upgrade-a-pair-with-accounts), because such a
    login can be captured and sent again. Congreve only."""
    tls_enable: bool = False
    """Whether the HA port is encrypted, at both ends: a master serves TLS only, with the
    certificate of its other ports, a slave connects by the keys `tls.client.*` of tls.properties
    ([TLS](tls.md#the-port-for-slaves)). Congreve only."""
    tls_need_client_auth: str = ""
    """Whether slaves must have a certificate: `none`, `optional` or `require`; empty: as
    `tls.server.need.client.auth`. Congreve only."""


class ElectionConfig(Part):
    """What decides a broker's role: its broker.conf, or an election (broker/election)."""

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


class ConsoleConfig(Part, rename=_after("console")):
    """The web console beside the broker (broker/processes/console_process.py)."""

    port: Annotated[int, Range(0, 65535)] = 0
    """Port of the [web console](console.md), which a process beside the broker serves; 0: none. It
    needs namesrvAddr. Congreve only."""
    address: Annotated[str, Show.NEVER] = "127.0.0.1"
    """Address that the console listens on. Congreve only."""
    hosts: str = ""
    """Further host names that browsers use for the console, separated by `;`. Congreve only."""
    cert_path: Annotated[str, Show.NEVER] = ""
    """PEM file with the console's certificate, for https. Congreve only."""
    key_path: Annotated[str, Show.NEVER] = ""
    """PEM file with the certificate's key. Congreve only."""
    hide_bodies: bool = False
    """Whether the console shows the sizes of messages' bodies instead of the bodies. Congreve
    only."""
    bodies_for: str = ""
    """consoleHideBodies=true: access keys that see bodies nevertheless, separated by `;`. Congreve
    only."""
    audit_log: Annotated[str, Show.NEVER] = ""
    """File to which the console appends what its users change; empty: none. Congreve only."""


class LakeConfig(Part, rename=_after("lake")):
    """Topics as tables (broker/processes/lake_process.py)."""

    topics: str = ""
    """Topics that a process beside the broker copies into tables, separated by `;`: [Topics as
    tables](lake.md). Congreve only."""
    warehouse: Annotated[str, Show.NEVER] = ""
    """The folder of the tables, or the warehouse of lakeCatalog; lakeTopics needs it. Congreve
    only."""
    catalog: Annotated[str, Show.NEVER] = ""
    """URI of a SQL or REST catalog; empty: SQLite in the folder lakeWarehouse. Congreve only."""
    properties: Annotated[str, Show.NEVER] = ""
    """Properties of pyiceberg, `KEY=VALUE` separated by `;`. Other users of the machine see them:
    pass secrets in environment variables. Congreve only."""
    partition: str = "day"
    """Unit of store time for the partitions of new tables: day or hour. Congreve only."""
    bodies: Annotated[str, Show.NEVER] = ""
    """Topics whose bodies become columns, `TOPIC=FORMAT:FILE` separated by `;`: format json or
    avro, and the file of the schema: [Bodies as columns](lake.md#bodies-as-columns). Congreve
    only."""
    drop_bodies: bool = False
    """New tables of lakeBodies have no column of whole bodies. lakeRetention needs them. Congreve
    only."""
    lag_millis: Annotated[int, Range(1_000, INT_MAX)] = 60_000
    """Time in ms in which an acknowledged message should be in its table. The store writes a
    checkpoint every third of it, if flushConsumeQueueThoroughInterval is longer. Congreve only."""
    commit_bytes: Annotated[int, Range(1 << 20, LONG_MAX)] = 512 << 20
    """Bytes of columns in a commit, before compression: the most that a file has. Congreve only."""
    retention: bool = False
    """Retention keeps what no table has, and pulls and queries below the log's beginning are
    answered from tables: [Reads beyond retention](lake.md#reads-beyond-retention). Congreve
    only."""
    read_bytes: Annotated[int, Range(1 << 20, LONG_MAX)] = 128 << 20
    """Memory in bytes for messages that were read from tables. Congreve only."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.topics and not self.warehouse:
            raise ConfigError(
                f"lakeTopics={self.topics!r} needs lakeWarehouse: a folder, or the "
                "warehouse of lakeCatalog"
            )
        if self.retention and not self.topics:
            raise ConfigError("lakeRetention=true needs lakeTopics: the topics that tables get")
        if self.retention and self.drop_bodies:
            raise ConfigError(
                "lakeRetention=true needs whole bodies in the tables: set lakeDropBodies=false"
            )
        if self.partition not in ("day", "hour"):
            raise ConfigError(f"lakePartition={self.partition!r}; use day or hour")


class PopConfig(Part):
    """Pops: messages that are handed out one by one. (RocketMQ 5: BrokerConfig.)"""

    pop_from_retry_probability: Annotated[int, Range(0, 100), Change.NOW] = 20
    """How many of 100 pops look first for messages that come again; the others look last for them;
    of RocketMQ 5."""
    pop_from_retry_probability_for_priority: Annotated[int, Range(0, 100), Change.NOW] = 0
    """The same for pops that take messages by priority; of RocketMQ 5."""
    priority_order_asc: Annotated[bool, Change.NOW] = True
    """Whether a larger number is a higher priority; of RocketMQ 5."""
    use_separate_retry_queue: Annotated[bool, Change.NOW] = False
    """Whether what comes again keeps its queue, and so its priority, instead of all in one queue;
    of RocketMQ 5."""
    default_message_request_mode: Annotated[str, Change.NOW] = "PULL"
    """How consumers with clientRebalance=false read a topic for which `mqadmin setConsumeMode` has
    set nothing: PULL or POP; of RocketMQ 5."""
    default_pop_share_queue_num: Annotated[int, Range(-1, INT_MAX), Change.NOW] = -1
    """defaultMessageRequestMode=POP: the queues of how many other members a member pops beside its
    own; below 1 all queues; of RocketMQ 5."""
    pop_polling_size: Annotated[int, Range(1, INT_MAX), Change.NOW] = 1_024
    """Most pops of one group that wait for messages of one topic; of RocketMQ 5."""
    max_pop_polling_size: Annotated[int, Range(1, INT_MAX), Change.NOW] = 100_000
    """Most pops that wait for messages; of RocketMQ 5."""
    max_messages_out: Annotated[int, Range(1, LONG_MAX)] = 20_000_000
    """Most messages that are out: popped, and neither acknowledged nor due again. Each takes some
    24 bytes. A broker does not start with fewer than its store has out. Congreve only."""
    max_messages_out_of_queue: Annotated[int, Range(1, LONG_MAX)] = 1_000_000
    """Most of them of one queue for one group. Congreve only."""

    def __post_init__(self) -> None:
        super().__post_init__()
        mode = self.default_message_request_mode
        if mode not in REQUEST_MODES:
            raise ConfigError(f"defaultMessageRequestMode={mode!r}; use PULL or POP")

    @property
    def limits(self) -> PopLimits:
        """How many messages may be out."""
        return PopLimits(store=self.max_messages_out, window=self.max_messages_out_of_queue)


class LimitsConfig(Part):
    """Limits of what grows with clients' requests and connections."""

    max_topics: Annotated[int, Range(1, INT_MAX), Change.NOW] = 200_000
    """Most topics. Congreve only."""
    max_groups: Annotated[int, Range(1, INT_MAX), Change.NOW] = 100_000
    """Most groups of each kind: in subscriptionGroup.json, with consumers online, with producers
    online. Congreve only."""
    max_created_on_use_bytes: Annotated[int, Range(1, LONG_MAX), Change.NOW] = 96 << 20
    """Memory for groups that clients created by using them since the start, and as much for such
    topics: some 35,000 groups, 17,000 topics with four queues. Congreve only."""
    max_lmq_consume_queue_num: Annotated[int, Range(1, INT_MAX), Change.NOW] = 2_000_000
    """Most lite topics of all topics; a send does not create a further one. Of RocketMQ 5.5."""
    max_lite_subscription_count: Annotated[int, Range(1, INT_MAX), Change.NOW] = 100_000
    """Most subscriptions of clients to lite topics; of RocketMQ 5.5."""
    max_group_members: Annotated[int, Range(1, INT_MAX), Change.NOW] = 10_000
    """Most members of one group. Congreve only."""
    max_group_subscriptions: Annotated[int, Range(1, INT_MAX), Change.NOW] = 10_000
    """Most topics to which one group subscribes. Congreve only."""
    max_queue_locks: Annotated[int, Range(1, INT_MAX), Change.NOW] = 200_000
    """Most locks of queues for orderly consumers; a client has at most 20,000. Congreve only."""
    max_memberships: Annotated[int, Range(1, INT_MAX), Change.NOW] = 1_000_000
    """Most members of all groups together, for consumers and for producers. Congreve only."""
    max_subscription_bytes: Annotated[int, Range(1, LONG_MAX), Change.NOW] = 128 << 20
    """Memory for the subscriptions of groups with consumers online. Congreve only."""
    max_filter_bytes: Annotated[int, Range(1, LONG_MAX), Change.NOW] = 64 << 20
    """Memory for SQL92 filters; those of groups that left are dropped first. Congreve only."""
    max_consumer_offsets: Annotated[int, Range(1, INT_MAX), Change.NOW] = 2_000_000
    """Most queues for which groups together keep offsets. Congreve only."""
    max_consumer_offset_bytes: Annotated[int, Range(1, LONG_MAX), Change.NOW] = 240 << 20
    """Memory for the offsets of groups. Congreve only."""
    max_connections: Annotated[int, Range(0, INT_MAX)] = 0
    """Most connections; 0: as many as the limit of open files allows. Congreve only."""
    max_connections_per_address: Annotated[int, Range(0, INT_MAX)] = 0
    """Most connections from one address; further ones are closed at once. 0: no limit. Congreve
    only."""
    max_unfinished_frame_bytes: Annotated[int, Range(1, LONG_MAX)] = 96 << 20
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

    @property
    def shared(self) -> SharedLimits:
        """The limits that all connections share."""
        return SharedLimits(
            connections=self.max_connections,
            connections_of_address=self.max_connections_per_address,
            unfinished_bytes=self.max_unfinished_frame_bytes,
            unread_bytes=self.max_unread_answer_bytes,
            first_frame_timeout_s=self.first_frame_timeout_mills / 1000,
            frame_timeout_s=self.frame_timeout_mills / 1000,
        )
