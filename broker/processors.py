"""The processor of every request code (RocketMQ: BrokerController.registerProcessor)."""

import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Protocol

from congreve.broker.admin.broker import BrokerAdminProcessor
from congreve.broker.admin.consumers import ClientAdminProcessor
from congreve.broker.admin.groups import GroupAdminProcessor
from congreve.broker.admin.runtime_info import RuntimeInfo
from congreve.broker.admin.topics import TopicAdminProcessor
from congreve.broker.config import BrokerConfig
from congreve.broker.group.client_processor import ClientManageProcessor
from congreve.broker.group.consumer_processor import ConsumerManageProcessor
from congreve.broker.managers import Managers
from congreve.broker.pull.processor import PullMessageProcessor
from congreve.broker.pull.query import QueryMessageProcessor
from congreve.broker.registration import HEARD_TIMEOUT_S
from congreve.broker.send.checks import SendChecks
from congreve.broker.send.group_commit import GroupCommit
from congreve.broker.send.processor import SendMessageProcessor
from congreve.broker.send.reply import ReplyMessageProcessor
from congreve.broker.send.send_back import SendBackProcessor
from congreve.engine.clock import Clock
from congreve.engine.store import MessageStore
from congreve.remoting.transport.dispatcher import Handler
from congreve.remoting.transport.guard import ConnectionGuard


class Processor(Protocol):
    """Serves some request codes."""

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""


class Processors:
    """Builds all processors of one broker."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        config_path: Path | None,
        config_changed: Callable[[set[str]], Awaitable[None]],
        managers: Managers,
        store: MessageStore,
        group_commit: GroupCommit,
        pulls: PullMessageProcessor,
        announced: Callable[[float], Awaitable[None]],
        guard: ConnectionGuard,
        clock: Clock,
    ) -> None:
        self._config = config
        self._config_path = config_path
        self._config_changed = config_changed
        self._managers = managers
        self._store = store
        self._group_commit = group_commit
        self._pulls = pulls
        self._announced = announced
        self._guard = guard
        self._clock = clock

    def handlers(self) -> dict[int, Handler]:
        """The handlers of all request codes."""
        processors = (
            *self._message_processors(),
            self._pulls,
            *self._client_processors(),
            *self._topic_processors(),
            self._broker_processor(),
        )
        return {
            code: handler
            for processor in processors
            for code, handler in processor.handlers().items()
        }

    def _message_processors(self) -> tuple[Processor, ...]:
        config, store, group_commit = self._config, self._store, self._group_commit
        topics, groups = self._managers.topics, self._managers.groups
        return (
            SendMessageProcessor(
                config=config,
                topics=topics,
                groups=groups,
                store=store,
                group_commit=group_commit,
                transactions=self._managers.transactions.service,
                saved=self._managers.saved,
                clock=self._clock,
            ),
            SendBackProcessor(
                config=config,
                topics=topics,
                groups=groups,
                store=store,
                group_commit=group_commit,
                saved=self._managers.saved,
            ),
            self._managers.transactions.processor(group_commit),
            ReplyMessageProcessor(
                config=config,
                checks=SendChecks(config, topics, store.config, self._clock),
                saved=self._managers.saved,
                producers=self._managers.producers,
                store=store,
                group_commit=group_commit,
                clock=self._clock,
            ),
            QueryMessageProcessor(
                store, self._managers.consumers, self._managers.filters, self._managers.pieces
            ),
        )

    def _client_processors(self) -> tuple[Processor, ...]:
        return (
            ClientManageProcessor(
                config=self._config,
                topics=self._managers.topics,
                groups=self._managers.groups,
                consumers=self._managers.consumers,
                producers=self._managers.producers,
                filters=self._managers.filters,
                saved=self._managers.saved,
                announced=self._announced,
                pieces=self._managers.pieces,
            ),
            ConsumerManageProcessor(
                topics=self._managers.topics,
                consumers=self._managers.consumers,
                offsets=self._managers.offsets,
                offsets_saved=self._managers.acknowledged_offsets.write,
                locks=self._managers.locks,
                store=self._store,
                memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
                pieces=self._managers.pieces,
            ),
            ClientAdminProcessor(
                config=self._config,
                topics=self._managers.topics,
                consumers=self._managers.consumers,
                producers=self._managers.producers,
                offsets=self._managers.offsets,
                store=self._store,
                pieces=self._managers.pieces,
            ),
        )

    def _topic_processors(self) -> tuple[Processor, ...]:
        return (
            TopicAdminProcessor(
                config=self._config,
                topics=self._managers.topics,
                offsets=self._managers.offsets,
                store=self._store,
                stats=self._managers.stats,
                pieces=self._managers.pieces,
                deleted=self._managers.deleted_topics,
                saved=self._managers.topics_file.saved,
                offsets_saved=self._managers.acknowledged_offsets.write,
                announced=lambda: self._announced(HEARD_TIMEOUT_S),
            ),
            GroupAdminProcessor(
                config=self._config,
                topics=self._managers.topics,
                groups=self._managers.groups,
                consumers=self._managers.consumers,
                offsets=self._managers.offsets,
                store=self._store,
                stats=self._managers.stats,
                clock=self._clock,
                pieces=self._managers.pieces,
                saved=self._managers.groups_file.saved,
                offsets_saved=self._managers.acknowledged_offsets.write,
            ),
        )

    def _broker_processor(self) -> Processor:
        return BrokerAdminProcessor(
            config=self._config,
            config_path=self._config_path,
            topics=self._managers.topics,
            store=self._store,
            deleted=self._managers.deleted_topics,
            stats=self._managers.stats,
            delay_offsets=self._managers.delayed.levels.wrapper,
            runtime_info=RuntimeInfo(
                config=self._config,
                store=self._store,
                stats=self._managers.stats,
                clock=self._clock,
                waiting=lambda: (len(self._group_commit), len(self._pulls.long_polling)),
                delayed=self._managers.delayed.levels.pending,
                connections=self._guard.counts,
                unsaved=self._managers.trouble,
            ),
            clock=self._clock,
            config_changed=self._config_changed,
            pieces=self._managers.pieces,
        )
