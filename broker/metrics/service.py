"""The metrics port of a broker: /metrics, /healthz, /readyz and /varz."""

import asyncio
from collections.abc import Generator
from http import HTTPStatus

import msgspec

from congreve.broker.admin.runtime_info import RuntimeInfo
from congreve.broker.config import BrokerConfig
from congreve.broker.figures.put_latency import PutLatency
from congreve.broker.figures.rpc_times import RpcTimes
from congreve.broker.managers import Managers
from congreve.broker.metrics.clients import ASK_S, ClientReports
from congreve.broker.metrics.exporter_names import ExporterNames
from congreve.broker.metrics.exposition import (
    OPEN_METRICS_TYPE,
    PLAIN_TYPE,
    Families,
    is_open_metrics,
    text_steps,
)
from congreve.broker.metrics.figures import FigureCollector, Figures
from congreve.broker.metrics.http_server import Answer, HttpServer
from congreve.broker.metrics.native_names import NativeNames
from congreve.broker.metrics.own_names import OwnNames
from congreve.broker.metrics.pop_names import PopNames
from congreve.broker.metrics.table_lag import TableLag
from congreve.broker.processes.lake_process import parts_of
from congreve.broker.quotas.quotas import Quotas
from congreve.broker.serving.message_paths import MessagePaths
from congreve.remoting.loop.periodic import Periodic
from congreve.remoting.loop.pieces import Pieces
from congreve.remoting.loop.watchdog import Watchdog
from congreve.remoting.transport.guard import ConnectionGuard

PIECE_S = 0.0012
"""A piece of a collection, after which the event loop serves requests."""
PAUSE_S = 0.001
"""The pause after each piece: lanes and the loop share the cores."""
SERIES_OF_ROW = 18
"""Series of a group on a topic, which has the most."""

STARTING = "the broker is starting"
STOPPING = "the broker is stopping"


class MetricsService:
    """Serves a broker's figures over HTTP (RocketMQ: BrokerMetricsManager).

    It listens from before the store opens until it is closed, so that probes see both. The event
    loop collects the figures in short pieces.
    """

    def __init__(
        self,
        config: BrokerConfig,
        managers: Managers,
        guard: ConnectionGuard,
        watchdog: Watchdog | None,
        quotas: Quotas,
    ) -> None:
        self._config = config
        self._managers = managers
        self._guard = guard
        self._watchdog = watchdog
        self._quotas = quotas
        self.rpc_times = RpcTimes()
        """How long the requests that have handlers take."""
        self._state: str | None = STARTING
        self._collection: Collection | None = None
        topics = parts_of(config.lake.topics)
        store, clock = managers.store, managers.clock
        self._table_lag = TableLag(topics, store, clock) if topics else None
        self._reports = ClientReports(managers.members.consumers)
        self._asking = Periodic(ASK_S, self._reports.ask)
        self._pieces = Pieces(PIECE_S, pause_s=PAUSE_S)
        self._turn = asyncio.Lock()
        self._server: HttpServer | None = None

    def listen(self) -> None:
        """Open the port, unless metricsPort is -1. Raises BrokerError if it is in use."""
        config = self._config
        if config.metrics_port < 0:
            return
        pages = {
            "/metrics": self._metrics,
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/varz": self._varz,
        }
        self._server = HttpServer(pages, config.metrics_address, config.metrics_port)
        self._server.start()
        config.metrics_port = self._server.port

    def serve(self, paths: MessagePaths, runtime_info: RuntimeInfo) -> None:
        """Show all figures from now on: the broker serves clients."""
        self._state = None
        names = OwnNames(
            self._config,
            self._managers.store,
            paths,
            self._guard,
            self._watchdog,
            self._quotas,
        )
        self._collection = Collection(
            self._config,
            self._managers,
            paths,
            runtime_info,
            names,
            self._reports,
            self.rpc_times,
            self._table_lag,
        )
        if self._server is not None:
            self._asking.start()

    def note_stopping(self) -> None:
        """Answer that the broker is not ready."""
        self._state = STOPPING
        self._asking.stop()

    async def close(self) -> None:
        """Close the port. Idempotent."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop()

    def trouble(self) -> str | None:
        """Why the broker accepts no messages; None while it does."""
        return self._state or self._managers.store.trouble() or self._managers.trouble()

    async def _healthz(self, accept: str) -> Answer:
        return Answer([b"ok\n"])

    async def _readyz(self, accept: str) -> Answer:
        why = self.trouble()
        if why is None:
            return Answer([b"ok\n"])
        return Answer([f"{why}\n".encode()], status=HTTPStatus.SERVICE_UNAVAILABLE)

    async def _metrics(self, accept: str) -> Answer:
        if self._collection is None:
            return await self._readyz(accept)
        is_open = is_open_metrics(accept)
        if self._table_lag is not None:
            await asyncio.to_thread(self._table_lag.refresh)
        async with self._turn:
            steps = self._collection.text_steps(is_open, self.trouble())
            chunks = await self._pieces.run(steps)
        return Answer(chunks, OPEN_METRICS_TYPE if is_open else PLAIN_TYPE)

    async def _varz(self, accept: str) -> Answer:
        if self._collection is None:
            return await self._readyz(accept)
        async with self._turn:
            chunks = await self._pieces.run(self._collection.json_steps(self.trouble()))
        return Answer(chunks, "application/json")


class Collection:
    """All figures of a broker that serves, in steps (RocketMQ: BrokerMetricsManager)."""

    def __init__(
        self,
        config: BrokerConfig,
        managers: Managers,
        paths: MessagePaths,
        runtime_info: RuntimeInfo,
        own: OwnNames,
        reports: ClientReports,
        rpc_times: RpcTimes,
        table_lag: TableLag | None,
    ) -> None:
        self._config = config
        self._managers = managers
        self._paths = paths
        self._runtime_info = runtime_info
        self._own = own
        self._reports = reports
        self._rpc_times = rpc_times
        self._table_lag = table_lag
        self._exporter = ExporterNames(config)
        self._native = NativeNames(config)
        self._pops = PopNames(managers.pops, managers.store, lambda: config.metrics_max_series)
        self._latency = PutLatency(lambda: paths.put_times)
        self._figures = FigureCollector(
            managers.metadata,
            managers.members.consumers,
            managers.store,
            managers.stats,
            managers.clock,
            max_rows=lambda: config.metrics_max_series // SERIES_OF_ROW,
        )

    def text_steps(
        self, open_metrics: bool, trouble: str | None
    ) -> Generator[None, None, list[bytes]]:
        """The text of /metrics."""
        figures = yield from self._figures.steps()
        runtime = yield from self._runtime_info.table_steps()
        return (yield from text_steps(self._families(figures, runtime, trouble), open_metrics))

    def json_steps(self, trouble: str | None) -> Generator[None, None, list[bytes]]:
        """The text of /varz: the figures of brokerStatus, of topics and of groups."""
        figures = yield from self._figures.steps()
        runtime = yield from self._runtime_info.table_steps()
        total, free = self._runtime_info.disk_space()
        answers, pulls = self._paths.waiting()
        head = {
            "broker": self._config.broker_name,
            "cluster": self._config.broker_cluster_name,
            "address": self._config.address,
            "role": self._config.broker_role,
            "trouble": trouble,
            "waitingAnswers": answers,
            "waitingPulls": pulls,
            "diskBytes": total,
            "diskFreeBytes": free,
            "runtime": runtime,
        }
        chunks = [msgspec.json.encode(head)[:-1]]
        for name, rows in (("topics", figures.topics), ("groups", figures.groups)):
            chunks.append(f',"{name}":['.encode())
            for number, row in enumerate(rows):
                chunks.append((b"," if number else b"") + msgspec.json.encode(row))
                yield
            chunks.append(b"]")
        chunks.append(b"}\n")
        return chunks

    def _families(
        self, figures: Figures, runtime: dict[str, object], trouble: str | None
    ) -> Families:
        managers = self._managers
        seen, disk = managers.store.stats(), self._runtime_info.disk_space()
        rows = len(figures.topics) + len(figures.groups)
        yield from self._own.of_broker(trouble, figures.folded, rows)
        yield from self._own.of_store(disk)
        yield from self._own.of_sends(self._latency)
        yield from self._own.of_network()
        yield from self._own.of_quotas()
        yield from self._pops.families()
        if self._table_lag is not None:
            yield from self._table_lag.families()
        state = self._runtime_info.replication()
        yield from self._own.of_replication(state)
        behind = max((each.lag_bytes for each in state.slaves), default=0)
        yield from self._exporter.of_broker(
            runtime, self._latency.distribution(), disk, seen, behind
        )
        yield from self._exporter.of_topics(figures)
        yield from self._exporter.of_groups(figures)
        consumers = managers.members.consumers.groups
        producers = managers.members.producers.groups
        yield from self._exporter.of_members(consumers, producers, self._reports.figures)
        yield from self._native.of_topics(figures)
        yield from self._native.of_groups(figures, len(managers.metadata.groups.table))
        yield from self._native.of_messages(figures, self._paths.topics.counts)
        yield from self._native.of_requests(self._paths.put_times, dict(self._rpc_times.times))
        yield from self._native.of_dead_letters(managers.stats.dead_letters)
        yield from self._native.of_clients(consumers, producers)
        begun = managers.store.earliest_message_time()
        reserve_ms = managers.clock.now() - begun if begun > 0 else 0
        yield from self._native.of_store(seen, reserve_ms)
        yield from self._native.of_broker(
            self._paths.waiting(),
            len(managers.transactions.service.open_offsets()),
            sum(managers.delayed.timers.counts),
        )
