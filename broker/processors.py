"""Every request code and who serves it (RocketMQ: BrokerController.registerProcessor)."""

import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Protocol

from congreve.broker.admin_broker import BrokerAdminProcessor
from congreve.broker.admin_consumers import ClientAdminProcessor
from congreve.broker.admin_groups import GroupAdminProcessor
from congreve.broker.admin_topics import TopicAdminProcessor
from congreve.broker.client_manage import ClientManageProcessor
from congreve.broker.config import BrokerConfig
from congreve.broker.consumer_manage import ConsumerManageProcessor
from congreve.broker.durability import DurabilityGate
from congreve.broker.managers import Managers
from congreve.broker.pull import PullMessageProcessor
from congreve.broker.query import QueryMessageProcessor
from congreve.broker.reply import ReplyMessageProcessor
from congreve.broker.runtimeinfo import RuntimeInfo
from congreve.broker.send import SendMessageProcessor
from congreve.broker.sendback import SendBackProcessor
from congreve.broker.sendchecks import SendChecks
from congreve.engine.clock import Clock
from congreve.engine.store import MessageStore
from congreve.remoting.connection import Handler


class Processor(Protocol):
    """Who serves some request codes."""

    def handlers(self) -> Mapping[int, Handler]: ...


class Processors:
    """All processors of one broker; each gets exactly what it needs."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        config_path: Path | None,
        config_changed: Callable[[set[str]], None],
        managers: Managers,
        store: MessageStore,
        gate: DurabilityGate,
        pulls: PullMessageProcessor,
        announced: Callable[[], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._config = config
        self._config_path = config_path
        self._config_changed = config_changed
        self._managers = managers
        self._store = store
        self._gate = gate
        self._pulls = pulls
        self._announced = announced
        self._clock = clock

    def handlers(self) -> dict[int, Handler]:
        """The table of all request codes."""
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
        config, store, gate = self._config, self._store, self._gate
        topics, groups = self._managers.topics, self._managers.groups
        return (
            SendMessageProcessor(
                config=config,
                topics=topics,
                groups=groups,
                store=store,
                gate=gate,
                transactions=self._managers.transactions.service,
                clock=self._clock,
            ),
            SendBackProcessor(config=config, topics=topics, groups=groups, store=store, gate=gate),
            self._managers.transactions.processor(gate),
            ReplyMessageProcessor(
                config=config,
                checks=SendChecks(config, topics, store.config, self._clock),
                producers=self._managers.producers,
                store=store,
                gate=gate,
                clock=self._clock,
            ),
            QueryMessageProcessor(store, self._managers.consumers, self._managers.filters),
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
            ),
            ConsumerManageProcessor(
                topics=self._managers.topics,
                consumers=self._managers.consumers,
                offsets=self._managers.offsets,
                locks=self._managers.locks,
                store=self._store,
                memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            ),
            ClientAdminProcessor(
                config=self._config,
                topics=self._managers.topics,
                consumers=self._managers.consumers,
                producers=self._managers.producers,
                offsets=self._managers.offsets,
                store=self._store,
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
                saved=self._managers.topics_file.settled,
                announced=self._announced,
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
                saved=self._managers.groups_file.settled,
            ),
        )

    def _broker_processor(self) -> Processor:
        return BrokerAdminProcessor(
            config=self._config,
            config_path=self._config_path,
            topics=self._managers.topics,
            store=self._store,
            stats=self._managers.stats,
            delay_offsets=self._managers.delayed.levels.wrapper,
            runtime_info=RuntimeInfo(
                config=self._config,
                store=self._store,
                stats=self._managers.stats,
                clock=self._clock,
                waiting=lambda: (len(self._gate), len(self._pulls.hold)),
                delayed=self._managers.delayed.levels.pending,
            ),
            clock=self._clock,
            config_changed=self._config_changed,
        )
