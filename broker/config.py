"""The broker's settings: RocketMQ's broker.conf keys as typed fields.

Defaults are 4.9.4's, but for `flushDiskType`, which is SYNC_FLUSH here. Keys that this broker does
not know are kept for `getBrokerConfig` and reported, not refused.
"""

import socket
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from congreve.broker import properties
from congreve.broker.errors import ConfigError
from congreve.engine.config import StoreConfig
from congreve.engine.errors import StoreError
from congreve.remoting.localaddress import local_address

PERM_INHERIT = 1
PERM_WRITE = 2
PERM_READ = 4

MASTER_ID = 0
MASTER_ROLES = ("ASYNC_MASTER", "SYNC_MASTER")

#: The VIP port is that much below listenPort (RocketMQ: NettyServerConfig, fastListenPort).
VIP_DISTANCE = 2

# Intervals among them: a loop without a rest would do nothing else.
_POSITIVE = (
    "default_topic_queue_nums",
    "transaction_check_interval",
    "flush_consumer_offset_interval",
    "register_name_server_period",
    "register_broker_timeout_mills",
    "server_channel_max_idle_time_seconds",
)

# RocketMQ spells these in ways that no rule gives.
_NOT_KEYS = ("store", "unknown")
_BROKER_KEYS = {"broker_ip1": "brokerIP1", "broker_ip2": "brokerIP2"}


def _camel(field: str) -> str:
    first, *others = field.split("_")
    return first + "".join(part.capitalize() for part in others)


def _broker_key(field: str) -> str:
    return _BROKER_KEYS.get(field, _camel(field))


class BrokerConfig(msgspec.Struct, kw_only=True, rename=_broker_key):
    """RocketMQ's BrokerConfig and NettyServerConfig; MessageStoreConfig is in `store`.

    Times are milliseconds unless the name says otherwise. `listen_port` 0 takes any free port (and
    then there is no VIP port).
    """

    namesrv_addr: str = ""
    bind_address: str = "0.0.0.0"
    listen_port: int = 10911
    broker_ip1: str = msgspec.field(default_factory=local_address)
    broker_ip2: str = msgspec.field(default_factory=local_address)
    broker_name: str = msgspec.field(default_factory=socket.gethostname)
    broker_cluster_name: str = "DefaultCluster"
    broker_id: int = MASTER_ID
    broker_role: str = "ASYNC_MASTER"
    broker_permission: int = PERM_READ | PERM_WRITE
    region_id: str = "DefaultRegion"
    trace_on: bool = True

    default_topic_queue_nums: int = 8
    auto_create_topic_enable: bool = True
    auto_create_subscription_group: bool = True
    cluster_topic_enable: bool = True
    broker_topic_enable: bool = True
    trace_topic_enable: bool = False
    msg_trace_topic_name: str = "RMQ_SYS_TRACE_TOPIC"

    start_accept_send_request_time_stamp: int = 0
    reject_transaction_message: bool = False
    transaction_time_out: int = 6_000
    transaction_check_interval: int = 60_000
    transaction_check_max: int = 15
    store_reply_message_enable: bool = True

    long_polling_enable: bool = True
    short_polling_time_mills: int = 1_000
    enable_property_filter: bool = False
    slave_read_enable: bool = False
    notify_consumer_ids_changed_enable: bool = True
    rebalance_lock_max_live_time: int = 60_000  # rocketmq.broker.rebalance.lockMaxLiveTime
    flush_consumer_offset_interval: int = 5_000

    force_register: bool = True
    compressed_register: bool = False
    register_name_server_period: int = 30_000
    register_broker_timeout_mills: int = 6_000
    server_channel_max_idle_time_seconds: int = 120
    poll_micros_after_request: int = 100  # ours: see remoting/shortpoll.py; 0 sleeps at once
    ha_listen_port: int = 10912

    store: StoreConfig = msgspec.field(default_factory=StoreConfig)
    unknown: dict[str, str] = {}

    def __post_init__(self) -> None:
        if self.listen_port and not VIP_DISTANCE < self.listen_port <= 65535:
            raise ConfigError(
                f"listenPort={self.listen_port} is no port for a broker, which takes that - "
                f"{VIP_DISTANCE} too; use {VIP_DISTANCE + 1} to 65535, or 0 for any free port"
            )
        if not self.broker_name.strip() or not self.broker_cluster_name.strip():
            raise ConfigError("brokerName and brokerClusterName must not be blank")
        if self.broker_role not in (*MASTER_ROLES, "SLAVE"):
            raise ConfigError(
                f"brokerRole={self.broker_role!r}; use ASYNC_MASTER, SYNC_MASTER or SLAVE"
            )
        for name in _POSITIVE:
            if getattr(self, name) < 1:
                raise ConfigError(f"{_camel(name)}={getattr(self, name)}; at least 1 is needed")

    @property
    def readable(self) -> bool:
        return bool(self.broker_permission & PERM_READ)

    @property
    def writable(self) -> bool:
        return bool(self.broker_permission & PERM_WRITE)

    @property
    def is_slave(self) -> bool:
        return self.broker_role == "SLAVE"

    @property
    def store_host(self) -> tuple[str, int]:
        """What stored records and offset message ids name as their broker; ConfigError."""
        return _ip_of(self.broker_ip1), self.listen_port

    @property
    def name_servers(self) -> list[str]:
        """Addresses `host:port` out of namesrvAddr (`;` between them)."""
        return [part.strip() for part in self.namesrv_addr.split(";") if part.strip()]

    def apply(self, values: Mapping[str, str]) -> list[str]:
        """Set fields from broker.conf keys; returns the keys that nobody here knows.

        ConfigError names the first bad value; then nothing was changed.
        """
        own = _fields(BrokerConfig)
        stores = _fields(StoreConfig)
        mine = {own[k].name: _typed(k, v, own[k].type) for k, v in values.items() if k in own}
        theirs = {
            stores[k].name: _typed(k, v, stores[k].type) for k, v in values.items() if k in stores
        }
        store = _changed(self.store, theirs)
        before = {name: getattr(self, name) for name in mine}
        try:
            for name, value in mine.items():
                setattr(self, name, value)
            self.__post_init__()
        except ConfigError:
            for name, value in before.items():
                setattr(self, name, value)
            raise
        for name in (*theirs, "commit_log_dir"):
            # In place: a running store reads its settings anew each time.
            setattr(self.store, name, getattr(store, name))
        unknown = {k: v for k, v in values.items() if k not in own and k not in stores}
        self.unknown = {**self.unknown, **unknown}
        return list(unknown)

    def as_properties(self) -> dict[str, str]:
        """Every key with its value as text, sorted: what mqadmin getBrokerConfig shows."""
        values = dict(self.unknown)
        for struct in (self.store, self):
            for key, field in _fields(type(struct)).items():
                values[key] = _text(getattr(struct, field.name))
        return dict(sorted(values.items()))


class LoadedConfig(NamedTuple):
    """What load_config() found; `unknown` are (line, key) that have no effect."""

    config: BrokerConfig
    unknown: list[tuple[int, str]]


def load_config(path: str | Path, overrides: Mapping[str, str] | None = None) -> LoadedConfig:
    """Read a broker.conf; `overrides` (same keys) win over the file. ConfigError names the line."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        entries = properties.parse(text)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (UnicodeDecodeError, ConfigError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    lines = {entry.key: entry.first_line for entry in entries}
    values = {entry.key: entry.value for entry in entries} | dict(overrides or {})
    config = BrokerConfig()
    try:
        unknown = config.apply(values)
    except ConfigError as error:
        named = [line for key, line in lines.items() if str(error).startswith(key)]
        where = f"{path}:{named[0]}" if named else str(path)
        raise ConfigError(f"{where}: {error}") from error
    return LoadedConfig(config, [(lines[key], key) for key in unknown if key in lines])


@lru_cache(maxsize=16)
def _ip_of(host: str) -> str:
    """Records hold an address; brokerIP1 may be a name, which is looked up once, as in RocketMQ."""
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise ConfigError(
            f"brokerIP1={host!r} is neither an address nor a known name: {error.strerror}"
        ) from error


def _fields(struct: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    """Fields by their key in broker.conf."""
    return {
        field.encode_name: field
        for field in msgspec.structs.fields(struct)
        if field.name not in _NOT_KEYS
    }


def _typed(key: str, text: str, wanted: Any) -> Any:
    try:
        return msgspec.convert(text.strip(), wanted, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{key}={text!r}: {error}") from error


def _changed(store: StoreConfig, values: dict[str, Any]) -> StoreConfig:
    # Where the log lies follows from the root, unless it was named itself.
    if "root_dir" in values:
        values = {"commit_log_dir": "", **values}
    try:
        return msgspec.structs.replace(store, **values)
    except StoreError as error:
        raise ConfigError(str(error)) from error


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
