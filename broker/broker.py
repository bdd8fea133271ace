"""The broker put together: the one module that knows all others (RocketMQ: BrokerController)."""

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from congreve.broker.clients import CHANNEL_EXPIRED_MS
from congreve.broker.config import VIP_DISTANCE, BrokerConfig
from congreve.broker.durability import DurabilityGate
from congreve.broker.errors import BrokerError
from congreve.broker.hotpath import HotPath
from congreve.broker.hotsettings import follow_topics, host_bytes, hot_path_settings
from congreve.broker.managers import Managers
from congreve.broker.periodic import Periodic
from congreve.broker.processors import Processors
from congreve.broker.pull import PullMessageProcessor
from congreve.broker.refusals import answer_refusals
from congreve.broker.registration import NameServerRegistration
from congreve.broker.stats import SAMPLE_INTERVAL_S
from congreve.broker.topictable import TopicTable
from congreve.engine.clock import Clock
from congreve.engine.consumequeue import ConsumeQueue
from congreve.engine.store import Backend, MessageStore
from congreve.remoting.codes import RequestCode
from congreve.remoting.connection import Connection, Handler
from congreve.remoting.inbox import FrameSink
from congreve.remoting.loopthread import LoopThread
from congreve.remoting.server import RemotingServer, ServerLimits

logger = logging.getLogger(__name__)

HOUSEKEEPING_S = 10
_NOT_ON_VIP = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)


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
        self.managers = Managers(self.config, self.store, self._clock)
        self._registration = NameServerRegistration(self.config, self.managers.topics)
        self._pulls: PullMessageProcessor | None = None
        self._gate: DurabilityGate | None = None
        self._hot_path: HotPath | None = None
        self._servers: list[RemotingServer] = []
        self._started = False
        self._thread: LoopThread | None = None
        self._periodic = (
            Periodic(HOUSEKEEPING_S, self._housekeep),
            Periodic(SAMPLE_INTERVAL_S, self.managers.stats.sample),
            Periodic(self.config.flush_consumer_offset_interval / 1000, self.managers.save_offsets),
        )

    @property
    def port(self) -> int:
        return self.config.listen_port

    @property
    def address(self) -> str:
        """`ip:port`, as the name servers hand it out."""
        return f"{self.config.broker_ip1}:{self.config.listen_port}"

    async def start(self) -> None:
        """Open the store, listen, register. Everything is undone when a step fails."""
        if self._started:
            raise BrokerError("a broker starts only once: make a new Broker of its config")
        self._check_addresses()
        self._started = True
        try:
            await asyncio.to_thread(self.store.start)
            await self.managers.load()
            self.managers.stats.sample()
            await self._listen(answer_refusals(self._handlers()))
            await self.managers.start()
            await self._registration.start()
            for periodic in self._periodic:
                periodic.start()
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
            await server.stop(None if self._pulls is None else self._pulls.stop)
        self._servers.clear()
        if self._gate is not None:
            self._gate.stop()
        await self.managers.stop()
        await asyncio.to_thread(self.store.close)

    def _open_hot_path(self) -> tuple[PullMessageProcessor, DurabilityGate]:
        """What a message passes on its way in and out, and what waits on that way."""
        gate = DurabilityGate(self.store.backend, self.config.store.sync_flush_timeout / 1000)
        pulls = PullMessageProcessor(
            config=self.config,
            topics=self.managers.topics,
            groups=self.managers.groups,
            consumers=self.managers.consumers,
            filters=self.managers.filters,
            offsets=self.managers.offsets,
            store=self.store,
            stats=self.managers.stats,
            clock=self._clock,
        )
        self._gate, self._pulls = gate, pulls
        gate.start()
        fast_topics = TopicTable()
        follow_topics(self.managers.topics, fast_topics)
        self._hot_path = HotPath(
            store=self.store,
            topics=fast_topics,
            gate=gate,
            arrived=self._arrived,
            pulls=pulls.path,
            transactions=self.managers.transactions.hot_path(fast_topics),
            delays=self.managers.delayed.hot_path(self.config.broker_cluster_name),
            settings=hot_path_settings(self.config),
        )
        return pulls, gate

    def _handlers(self) -> dict[int, Handler]:
        pulls, gate = self._open_hot_path()
        return Processors(
            config=self.config,
            config_path=self._config_path,
            config_changed=self._config_changed,
            managers=self.managers,
            store=self.store,
            gate=gate,
            pulls=pulls,
            announced=self._registration.settled,
            clock=self._clock,
        ).handlers()

    def _check_addresses(self) -> None:
        """A name or port that cannot be had shall stop us before anything is written."""
        _, port = self.config.store_host
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
        self.managers.delayed.arrived(queue)
        if self._pulls is not None:
            self._pulls.hold.arrived(queue)

    def _connection_closed(self, connection: Connection) -> None:
        self.managers.connection_closed(connection)
        if self._pulls is not None:
            self._pulls.hold.connection_closed(connection)

    def _config_changed(self, keys: set[str]) -> None:
        self.managers.transactions.config_changed()
        self.managers.delayed.config_changed()
        if keys & {"brokerPermission", "startAcceptSendRequestTimeStamp"}:
            self.managers.topics.tell_again()

    def _housekeep(self) -> None:
        self.managers.locks.drop_expired()
        if self._pulls is not None:
            self._pulls.path.release_segments()
        silent = self.managers.consumers.expired(CHANNEL_EXPIRED_MS)
        for connection in {*silent, *self.managers.producers.expired(CHANNEL_EXPIRED_MS)}:
            logger.warning("no heartbeat from %s:%d for 120 s, closed", *connection.peer)
            connection.close()

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
