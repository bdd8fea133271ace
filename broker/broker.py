"""The broker put together: the one module that knows all others (RocketMQ: BrokerController)."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import msgspec

from congreve.broker.admin_broker import BrokerAdminProcessor
from congreve.broker.admin_consumers import ClientAdminProcessor
from congreve.broker.admin_groups import GroupAdminProcessor
from congreve.broker.admin_topics import TopicAdminProcessor
from congreve.broker.broker2client import notify_consumer_ids_changed
from congreve.broker.client_manage import ClientManageProcessor
from congreve.broker.clients import CHANNEL_EXPIRED_MS
from congreve.broker.config import BrokerConfig
from congreve.broker.consumer_manage import ConsumerManageProcessor
from congreve.broker.consumers import ConsumerManager
from congreve.broker.delayed import DelayedMessages
from congreve.broker.durability import DurabilityGate
from congreve.broker.errors import BrokerError
from congreve.broker.filters import ConsumerFilterManager
from congreve.broker.groups import SubscriptionGroupManager
from congreve.broker.hold import PullRequestHold
from congreve.broker.hotpath import HotPath
from congreve.broker.hotsettings import follow_topics, host_bytes, hot_path_settings
from congreve.broker.locks import RebalanceLockManager
from congreve.broker.offsets import ConsumerOffsetManager
from congreve.broker.periodic import Periodic
from congreve.broker.producers import ProducerManager
from congreve.broker.pull import PullMessageProcessor
from congreve.broker.query import QueryMessageProcessor
from congreve.broker.refusals import answer_refusals
from congreve.broker.registration import NameServerRegistration
from congreve.broker.reply import ReplyMessageProcessor
from congreve.broker.runtimeinfo import RuntimeInfo
from congreve.broker.send import SendMessageProcessor
from congreve.broker.sendback import SendBackProcessor
from congreve.broker.sendchecks import SendChecks
from congreve.broker.statewriter import StateWriter
from congreve.broker.stats import SAMPLE_INTERVAL_S, BrokerStats
from congreve.broker.topics import TopicConfigManager
from congreve.broker.topictable import TopicTable
from congreve.broker.transactions import Transactions
from congreve.engine.clock import Clock
from congreve.engine.consumequeue import ConsumeQueue
from congreve.engine.statefile import StateFile
from congreve.engine.store import Backend, MessageStore
from congreve.remoting.codes import RequestCode
from congreve.remoting.connection import Connection, Handler
from congreve.remoting.inbox import FrameSink
from congreve.remoting.loopthread import LoopThread
from congreve.remoting.server import RemotingServer, ServerLimits

logger = logging.getLogger(__name__)

HOUSEKEEPING_S = 10
VIP_DISTANCE = 2
_NOT_ON_VIP = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)


class Processor(Protocol):
    """Who serves some request codes."""

    def handlers(self) -> Mapping[int, Handler]: ...


_Saved = (
    TopicConfigManager | SubscriptionGroupManager | ConsumerOffsetManager | ConsumerFilterManager
)


class Broker:
    """One broker: a store, its listeners and its registration at the name servers.

    ``async with Broker(config)`` runs on the caller's loop, ``with Broker(config)`` on a loop and
    thread of its own. The given config is copied; `address` is what clients are told.
    StoreError, BrokerError or RemotingError when it cannot start, and then nothing is left running.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        config_path: Path | None = None,
        clock: Clock | None = None,
        backend: Backend | None = None,
        on_ready: Callable[["Broker"], None] | None = None,
    ) -> None:
        self.config = msgspec.structs.replace(config, store=msgspec.structs.replace(config.store))
        self._clock = clock or Clock()
        self._on_ready = on_ready
        self._config_path = config_path
        self.store = MessageStore(
            self.config.store, clock=self._clock, backend=backend, on_arrival=self._arrived
        )
        self._make_managers()
        self._hold: PullRequestHold | None = None
        self._gate: DurabilityGate | None = None
        self._hot_path: HotPath | None = None
        self._servers: list[RemotingServer] = []
        self._thread: LoopThread | None = None
        self._periodic = (
            Periodic(HOUSEKEEPING_S, self._housekeep),
            Periodic(SAMPLE_INTERVAL_S, self.stats.sample),
            Periodic(self.config.flush_consumer_offset_interval / 1000, self._save_offsets),
        )

    def _make_managers(self) -> None:
        config, clock, folder = self.config, self._clock, Path(self.config.store.config_dir)
        self.topics = TopicConfigManager(config, clock)
        self.groups = SubscriptionGroupManager(config, clock)
        self.offsets = ConsumerOffsetManager()
        self.filters = ConsumerFilterManager(clock)
        self.consumers = ConsumerManager(
            clock, notify_consumer_ids_changed, self.filters.unregister
        )
        self.producers = ProducerManager(clock)
        self.locks = RebalanceLockManager(clock)
        self.stats = BrokerStats(clock, lambda: self.store.queues)
        self.delayed = DelayedMessages(self.store, clock)
        self._state: dict[str, _Saved] = {
            "topics.json": self.topics,
            "subscriptionGroup.json": self.groups,
            "consumerOffset.json": self.offsets,
            "consumerFilter.json": self.filters,
        }
        self._files = {name: StateFile(str(folder / name)) for name in self._state}
        self._writers = [
            StateWriter(self._files[name], manager.wrapper) for name, manager in self._state.items()
        ]
        self._topics_file, self._groups_file, self._offsets_file, filters = self._writers
        self.topics.changed = self._topics_file.changed
        self.groups.changed = self._groups_file.changed
        self.filters.changed = filters.changed
        self.transactions = Transactions(
            config=config,
            topics=self.topics,
            producers=self.producers,
            offsets=self.offsets,
            store=self.store,
            clock=clock,
        )
        self._registration = NameServerRegistration(config, self.topics)

    @property
    def port(self) -> int:
        return self.config.listen_port

    @property
    def address(self) -> str:
        """`ip:port`, as the name servers hand it out."""
        return f"{self.config.broker_ip1}:{self.config.listen_port}"

    async def start(self) -> None:
        """Open the store, listen, register. Everything is undone when a step fails."""
        self._check_ports()
        try:
            await asyncio.to_thread(self.store.start)
            for name, manager in self._state.items():
                self._files[name].load(manager.load)
            self.delayed.load()
            await asyncio.to_thread(self.transactions.load)
            await self._listen(answer_refusals(self._handlers()))
            if not self.config.is_slave:
                await self.delayed.start()
            await self._registration.start()
            for periodic in self._periodic:
                periodic.start()
            self.transactions.start()
        except BaseException:
            await self.stop()
            raise
        logger.info("broker %s ready at %s", self.config.broker_name, self.address)
        if self._on_ready is not None:
            self._on_ready(self)

    async def stop(self) -> None:
        """Take no more requests, save what is in memory, close the store. Idempotent."""
        for periodic in self._periodic:
            periodic.stop()
        await self._registration.stop()
        for server in self._servers:
            await server.stop()
        self._servers.clear()
        if self._hold is not None:
            self._hold.stop()
        if self._gate is not None:
            self._gate.stop()
        await self.delayed.stop()
        await self.transactions.stop()
        self._save_offsets()
        for writer in self._writers:
            await writer.settled()
        await asyncio.to_thread(self.store.close)

    def _open_hot_path(self) -> tuple[PullMessageProcessor, DurabilityGate]:
        """What a message passes on its way in and out, and what waits on that way."""
        gate = DurabilityGate(self.store.backend, self.config.store.sync_flush_timeout / 1000)
        pulls = PullMessageProcessor(
            config=self.config,
            topics=self.topics,
            groups=self.groups,
            consumers=self.consumers,
            filters=self.filters,
            offsets=self.offsets,
            store=self.store,
            stats=self.stats,
            clock=self._clock,
        )
        self._gate, self._hold = gate, pulls.hold
        gate.start()
        fast_topics = TopicTable()
        follow_topics(self.topics, fast_topics)
        self._hot_path = HotPath(
            store=self.store,
            topics=fast_topics,
            gate=gate,
            hold=pulls.hold,
            pulls=pulls,
            transactions=self.transactions.hot_path(fast_topics),
            settings=hot_path_settings(self.config),
        )
        return pulls, gate

    def _handlers(self) -> dict[int, Handler]:
        """Processors get exactly what they need; the table of all request codes comes out."""
        pulls, gate = self._open_hot_path()
        processors = (
            *self._message_processors(gate),
            pulls,
            *self._client_processors(),
            *self._topic_processors(),
            self._broker_processor(pulls, gate),
        )
        return {
            code: handler
            for processor in processors
            for code, handler in processor.handlers().items()
        }

    def _message_processors(self, gate: DurabilityGate) -> tuple[Processor, ...]:
        config, topics, groups, store = self.config, self.topics, self.groups, self.store
        return (
            SendMessageProcessor(
                config=config,
                topics=topics,
                groups=groups,
                store=store,
                gate=gate,
                transactions=self.transactions.service,
                clock=self._clock,
            ),
            SendBackProcessor(config=config, topics=topics, groups=groups, store=store, gate=gate),
            self.transactions.processor(gate),
            ReplyMessageProcessor(
                config=config,
                checks=SendChecks(config, topics, store.config, self._clock),
                producers=self.producers,
                store=store,
                gate=gate,
                clock=self._clock,
            ),
            QueryMessageProcessor(store, self.consumers),
        )

    def _client_processors(self) -> tuple[Processor, ...]:
        return (
            ClientManageProcessor(
                config=self.config,
                topics=self.topics,
                groups=self.groups,
                consumers=self.consumers,
                producers=self.producers,
                filters=self.filters,
            ),
            ConsumerManageProcessor(
                topics=self.topics,
                consumers=self.consumers,
                offsets=self.offsets,
                locks=self.locks,
                store=self.store,
                memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            ),
            ClientAdminProcessor(
                config=self.config,
                topics=self.topics,
                consumers=self.consumers,
                producers=self.producers,
                offsets=self.offsets,
                store=self.store,
            ),
        )

    def _topic_processors(self) -> tuple[Processor, ...]:
        return (
            TopicAdminProcessor(
                config=self.config,
                topics=self.topics,
                offsets=self.offsets,
                store=self.store,
                stats=self.stats,
                saved=self._topics_file.settled,
            ),
            GroupAdminProcessor(
                config=self.config,
                topics=self.topics,
                groups=self.groups,
                consumers=self.consumers,
                offsets=self.offsets,
                store=self.store,
                stats=self.stats,
                clock=self._clock,
                saved=self._groups_file.settled,
            ),
        )

    def _broker_processor(self, pulls: PullMessageProcessor, gate: DurabilityGate) -> Processor:
        return BrokerAdminProcessor(
            config=self.config,
            config_path=self._config_path,
            topics=self.topics,
            store=self.store,
            stats=self.stats,
            delay_offsets=self.delayed.levels.wrapper,
            runtime_info=RuntimeInfo(
                config=self.config,
                store=self.store,
                stats=self.stats,
                clock=self._clock,
                waiting=lambda: (len(gate), len(pulls.hold)),
                delayed=self.delayed.levels.pending,
            ),
            clock=self._clock,
            config_changed=self._config_changed,
        )

    def _check_ports(self) -> None:
        """A port that somebody else has shall stop us before anything is written."""
        port = self.config.listen_port
        for wanted in (port, port - VIP_DISTANCE) if port else ():
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((self.config.bind_address, wanted))
                except OSError as error:
                    raise BrokerError(
                        f"cannot listen on {self.config.bind_address}:{wanted}"
                        f" (listenPort={port}): {error.strerror}"
                    ) from error

    async def _listen(self, handlers: Mapping[int, Handler]) -> None:
        config = self.config
        assert self._hot_path is not None
        main = self._server(handlers, config.listen_port, self._hot_path)
        await main.start()
        if config.listen_port == 0:
            config.listen_port = main.port
            self._hot_path.set_store_host(host_bytes(config.store_host))
            return
        vip = {code: handler for code, handler in handlers.items() if code not in _NOT_ON_VIP}
        await self._server(vip, config.listen_port - VIP_DISTANCE).start()

    def _server(
        self, handlers: Mapping[int, Handler], port: int, sink: FrameSink | None = None
    ) -> RemotingServer:
        server = RemotingServer(
            handlers,
            host=self.config.bind_address,
            port=port,
            sink=sink,
            limits=ServerLimits(
                idle_timeout_s=self.config.server_channel_max_idle_time_seconds,
                poll_s=self.config.poll_micros_after_request / 1e6,
            ),
            on_close=self._connection_closed,
        )
        self._servers.append(server)
        return server

    def _arrived(self, queue: ConsumeQueue) -> None:
        self.delayed.arrived(queue)
        if self._hold is not None:
            self._hold.arrived(queue)

    def _connection_closed(self, connection: Connection) -> None:
        self.consumers.connection_closed(connection)
        self.producers.connection_closed(connection)
        if self._hold is not None:
            self._hold.connection_closed(connection)

    def _config_changed(self, keys: set[str]) -> None:
        self.transactions.config_changed()
        if keys & {"brokerPermission", "startAcceptSendRequestTimeStamp"}:
            self.topics.tell_again()

    def _housekeep(self) -> None:
        self.locks.drop_expired()
        if self._hot_path is not None:
            self._hot_path.release_segments()
        silent = self.consumers.expired(CHANNEL_EXPIRED_MS)
        for connection in {*silent, *self.producers.expired(CHANNEL_EXPIRED_MS)}:
            logger.warning("no heartbeat from %s:%d for 120 s, closed", *connection.peer)
            connection.close()

    def _save_offsets(self) -> None:
        self.transactions.save()
        if self.offsets.dirty:
            self.offsets.dirty = False
            self._offsets_file.changed()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    def __enter__(self) -> Self:
        self._thread = LoopThread(f"broker {self.config.broker_name}")
        try:
            self._thread.run(self.start())
        except BaseException:
            self._end_thread()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._thread is not None:
            try:
                self._thread.run(self.stop())
            finally:
                self._end_thread()

    def _end_thread(self) -> None:
        if self._thread is not None:
            self._thread.stop()
            self._thread = None
