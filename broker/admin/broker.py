"""Administration of the broker itself (RocketMQ: AdminBrokerProcessor)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from congreve import settings
from congreve.broker import java_properties
from congreve.broker.admin.runtime_info import RuntimeInfo
from congreve.broker.admin.stats import BrokerStats
from congreve.broker.config import BrokerConfig, all_settings, parse_config
from congreve.broker.errors import ConfigError, RefusedError
from congreve.broker.metadata.deleted_topics import DeletedTopics, remove_queues
from congreve.broker.metadata.topics import TopicConfigManager
from congreve.engine.clock import Clock
from congreve.engine.errors import StoreError
from congreve.engine.state.state_file import StateFile
from congreve.engine.store import MessageStore
from congreve.remoting.messages.bodies import DataVersion, DelayOffsetSerializeWrapper, KVTable
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import ViewBrokerStatsDataRequestHeader
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Handler
from congreve.remoting.transport.pieces import Pieces

logger = logging.getLogger(__name__)

MAX_UPDATE = 64 << 10  # bytes of one request's key=value lines
# mqadmin exportConfigs fails without these, which have no effect here.
_ASKED_FOR = {"filterServerNums": "0", "useTLS": "false"}


class BrokerAdminProcessor:
    """Configuration, runtime info, maintenance.

    `config_changed` is called with the keys that changed.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        config_path: Path | None,
        topics: TopicConfigManager,
        store: MessageStore,
        deleted: DeletedTopics,
        stats: BrokerStats,
        runtime_info: RuntimeInfo,
        delay_offsets: Callable[[], DelayOffsetSerializeWrapper],
        clock: Clock,
        config_changed: Callable[[set[str]], Awaitable[None]],
        pieces: Pieces,
    ) -> None:
        self._config = config
        self._config_path = config_path
        self._topics = topics
        self._store = store
        self._deleted = deleted
        self._stats = stats
        self._runtime_info = runtime_info
        self._delay_offsets = delay_offsets
        self._clock = clock
        self._config_changed = config_changed
        self._pieces = pieces
        self._turn = asyncio.Lock()
        self._version = DataVersion(counter=0, timestamp=clock.now())

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
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
        """All settings as key=value lines (GET_BROKER_CONFIG)."""
        values = {**_ASKED_FOR, **self._config.as_properties()}
        lines = [f"{key}={value}\n" for key, value in sorted(values.items())]
        fields = {"version": self._version.encode().decode()}
        return request.reply(ResponseCode.SUCCESS, None, fields, "".join(lines).encode())

    async def update_config(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """Check all new values, save them to the configuration file, then take them.

        A change that cannot be saved is rejected as a whole.
        """
        async with self._turn:
            try:
                texts = _key_values(request.body)
                later = self._only_after_restart(texts)
                self._config.changed(texts)
                now = self._config.changed({k: v for k, v in texts.items() if k not in later})
                if self._config_path is not None:
                    await asyncio.to_thread(_save, self._config_path, texts)
            except (ConfigError, StoreError, OSError, ValueError) as error:
                raise RefusedError(ResponseCode.SYSTEM_ERROR, str(error)) from error
            self._config.take(now)
        logger.info("config updated by %s:%d: %s", *connection.peer, texts)
        self._version = DataVersion(counter=self._version.counter + 1, timestamp=self._clock.now())
        await self._config_changed(texts.keys() - later)
        remark = f"after a restart: {', '.join(sorted(later))}" if later else None
        return request.reply(ResponseCode.SUCCESS, remark)

    def _only_after_restart(self, texts: Mapping[str, str]) -> set[str]:
        """The keys that count after a restart. Raises ValueError for one that may not change."""
        where = "the broker's configuration file"
        changes = settings.check_changeable(all_settings(), texts, where)
        later = {
            key
            for key, setting in changes.items()
            if setting.change is settings.Change.AFTER_RESTART
        }
        if later and self._config_path is None:
            raise ConfigError(
                f"{', '.join(sorted(later))} cannot change while running, and this broker was "
                "started without a file to keep it in"
            )
        return later

    async def get_runtime_info(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """The table of `mqadmin brokerStatus`."""
        body = KVTable(table=await self._pieces.run(self._runtime_info.table_steps()))
        return request.reply(ResponseCode.SUCCESS, body=body.encode())

    def get_delay_offsets(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """The next offset of each delay level's queue."""
        return request.reply(ResponseCode.SUCCESS, body=self._delay_offsets().encode())

    def clean_expired(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Delete segments and queue files that have expired."""
        self._store.clean_expired()
        return request.reply(ResponseCode.SUCCESS)

    async def clean_unused_topics(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """Remove the queues of topics that the table does not have."""
        unused = self._store.unused_topics(self._topics.table)
        if unused:
            with ExitStack() as stack:
                for topic in unused:
                    stack.enter_context(self._topics.deleting(topic))
                await self._remove_queues(unused)
        logger.info("queues of %d unused topics removed for %s:%d", len(unused), *connection.peer)
        return request.reply(ResponseCode.SUCCESS)

    async def _remove_queues(self, topics: list[str]) -> None:
        """Remove queues, and note that: rebuilt from the log they would bring back the topics."""
        await self._deleted.begin(topics)
        for topic in topics:
            await remove_queues(self._store, topic)
            await asyncio.sleep(0)
        log_end = self._store.log.max_offset
        await asyncio.to_thread(self._store.checkpoint)
        if self._store.backend.durable_offset >= log_end:
            self._deleted.end(topics, log_end)
        await self._deleted.file.saved()

    def view_stats(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """One counter of BrokerStats. Raises RefusedError when it does not exist."""
        header = ViewBrokerStatsDataRequestHeader.read(request)
        body = self._stats.view(header.stats_name, header.stats_key)
        if body is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"The stats <{header.stats_name}> <{header.stats_key}> not exist",
            )
        return request.reply(ResponseCode.SUCCESS, body=body.encode())


def _key_values(body: bytes | memoryview) -> dict[str, str]:
    if len(body) > MAX_UPDATE:
        raise ConfigError(f"{len(body)} bytes of settings: at most {MAX_UPDATE} are taken at once")
    text = bytes(body).decode()
    texts = {entry.key: entry.value for entry in java_properties.parse(text)}
    if not texts:
        raise ConfigError(f"no key=value in the request's body: {text[:200]!r}")
    return texts


def _save(path: Path, texts: Mapping[str, str]) -> None:
    """Write these values to the file; the next start can read it."""
    target = path.resolve()  # a link stays one
    try:
        text = java_properties.replace_values(target.read_text(encoding="utf-8"), texts)
    except (ConfigError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot change {path}: {error}") from error
    parse_config(text, path)
    StateFile(str(target)).replace(text)
