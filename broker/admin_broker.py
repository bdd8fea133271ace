"""Administration of the broker itself (RocketMQ: AdminBrokerProcessor)."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from congreve.broker import properties
from congreve.broker.config import BrokerConfig
from congreve.broker.errors import ConfigError, RefusedError
from congreve.broker.runtimeinfo import RuntimeInfo
from congreve.broker.stats import BrokerStats
from congreve.broker.topics import TopicConfigManager
from congreve.engine.clock import Clock
from congreve.engine.errors import StoreError
from congreve.engine.statefile import StateFile
from congreve.engine.store import MessageStore
from congreve.remoting.bodies import DataVersion, DelayOffsetSerializeWrapper, KVTable
from congreve.remoting.codes import RequestCode, ResponseCode
from congreve.remoting.command import RemotingCommand
from congreve.remoting.connection import Connection, Handler
from congreve.remoting.headers import ViewBrokerStatsDataRequestHeader

logger = logging.getLogger(__name__)

# Read once while the broker starts: a change is kept in the file, and works after a restart.
_FIXED = frozenset(
    (
        "listenPort",
        "bindAddress",
        "haListenPort",
        "brokerIP1",
        "brokerName",
        "brokerClusterName",
        "brokerId",
        "regionId",
        "traceOn",
        "maxMessageSize",
        "namesrvAddr",
        "storePathRootDir",
        "storePathCommitLog",
        "mappedFileSizeCommitLog",
        "mappedFileSizeConsumeQueue",
        "maxHashSlotNum",
        "maxIndexNum",
        "messageIndexEnable",
        "messageDelayLevel",
        "ioBackend",
        "flushDiskType",
        "syncFlushTimeout",
        "flushConsumerOffsetInterval",
        "serverChannelMaxIdleTimeSeconds",
        "rebalanceLockMaxLiveTime",
    )
)
# mqadmin exportConfigs fails without these, which have no say here.
_ASKED_FOR = {"filterServerNums": "0", "useTLS": "false"}


class BrokerAdminProcessor:
    """Configuration, runtime info, maintenance. `config_changed` is told of new settings."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        config_path: Path | None,
        topics: TopicConfigManager,
        store: MessageStore,
        stats: BrokerStats,
        runtime_info: RuntimeInfo,
        delay_offsets: Callable[[], DelayOffsetSerializeWrapper],
        clock: Clock,
        config_changed: Callable[[set[str]], None],
    ) -> None:
        self._config = config
        self._config_path = config_path
        self._topics = topics
        self._store = store
        self._stats = stats
        self._runtime_info = runtime_info
        self._delay_offsets = delay_offsets
        self._clock = clock
        self._config_changed = config_changed
        self._version = DataVersion(counter=0, timestamp=clock.now())

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.GET_BROKER_CONFIG: self.get_config,
            RequestCode.UPDATE_BROKER_CONFIG: self.update_config,
            RequestCode.GET_BROKER_RUNTIME_INFO: self.get_runtime_info,
            RequestCode.GET_ALL_DELAY_OFFSET: self.get_delay_offsets,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.clean_expired,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.clean_expired,
            RequestCode.CLEAN_UNUSED_TOPIC: self.clean_unused_topics,
            RequestCode.VIEW_BROKER_STATS_DATA: self.view_stats,
        }

    def get_config(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        values = {**_ASKED_FOR, **self._config.as_properties()}
        lines = [f"{key}={value}\n" for key, value in sorted(values.items())]
        fields = {"version": self._version.encode().decode()}
        return request.reply(ResponseCode.SUCCESS, None, fields, "".join(lines).encode())

    def update_config(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Take new values now where that is possible, and keep them in the file we came from."""
        try:
            text = bytes(request.body).decode()
            changes = {entry.key: entry.value for entry in properties.parse(text)}
            if not changes:
                raise ConfigError(f"no key=value in the request's body: {text[:200]!r}")
            fixed = _FIXED & changes.keys()
            if fixed and self._config_path is None:
                raise ConfigError(f"{', '.join(sorted(fixed))} cannot change while running")
            now = {key: value for key, value in changes.items() if key not in fixed}
            BrokerConfig().apply(changes)
            unknown = self._config.apply(now)
            if self._config_path is not None:
                old = self._config_path.read_text(encoding="utf-8")
                StateFile(str(self._config_path)).replace(properties.replace_values(old, changes))
        except (ConfigError, StoreError, OSError, UnicodeDecodeError) as error:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        logger.info("config updated by %s:%d: %s", *connection.peer, changes)
        if unknown:
            logger.warning("keys without effect here: %s", ", ".join(unknown))
        self._version = DataVersion(counter=self._version.counter + 1, timestamp=self._clock.now())
        self._config_changed(set(now))
        remark = f"after a restart: {', '.join(sorted(fixed))}" if fixed else None
        return request.reply(ResponseCode.SUCCESS, remark)

    def get_runtime_info(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        body = KVTable(table=self._runtime_info.table())
        return request.reply(ResponseCode.SUCCESS, body=body.encode())

    def get_delay_offsets(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        return request.reply(ResponseCode.SUCCESS, body=self._delay_offsets().encode())

    def clean_expired(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        self._store.clean_expired()
        return request.reply(ResponseCode.SUCCESS)

    def clean_unused_topics(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        removed = self._store.clean_unused_topics(set(self._topics.table))
        logger.info("queues of %d unused topics removed for %s:%d", removed, *connection.peer)
        return request.reply(ResponseCode.SUCCESS)

    def view_stats(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = ViewBrokerStatsDataRequestHeader.read(request)
        body = self._stats.view(header.stats_name, header.stats_key)
        if body is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"The stats <{header.stats_name}> <{header.stats_key}> not exist",
            )
        return request.reply(ResponseCode.SUCCESS, body=body.encode())
