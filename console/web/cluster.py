"""A cluster as one account sees it: brokers, their figures, topics and groups."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from ssl import SSLContext
from typing import TypeVar

import msgspec

from congreve.base.errors import CongreveError
from congreve.client.admin import AdminClient
from congreve.client.admin.dead_letters import LetterBacklog
from congreve.client.admin.lookup import MessageLookup
from congreve.client.admin.reports import BrokerReports
from congreve.client.errors import BrokerError, BrokerNotFoundError
from congreve.client.transport.route import MASTER_ID
from congreve.console.web.jobs import Jobs
from congreve.console.web.refreshed import Refreshed
from congreve.console.web.snapshot import (
    BrokerTables,
    GroupRow,
    Lag,
    Snapshot,
    TopicRow,
    combine,
    read_lags,
    read_tables,
)
from congreve.console.web.topic_figures import FiguresOfTopics
from congreve.remoting.errors import RemotingError
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.headers import UnregisterClientRequestHeader
from congreve.remoting.messages.signature import Credentials

T = TypeVar("T")

BROKERS_AGE_S = 5.0
STATUS_AGE_S = 1.5
SNAPSHOT_AGE_S = 10.0
SNAPSHOT_STALE_S = 60.0
"""Pages show a lag that is older than this as one that is being read."""
LAG_WAIT_S = 0.15
"""How long a page waits for the lag when the last snapshot is out of date."""
LETTERS_AGE_S = 60.0
SEARCH_AGE_MS = 2_000
"""If a snapshot lacks a topic or group, and is older than this, the console reads a new one."""
HISTORY_MAX = 300
"""Number of rate samples in memory; the overview takes one every two seconds."""
RATE_S = 30.0
"""Maximum time between two samples for a rate; the chart has a gap where samples are further
apart."""
TIMEOUT_S = 15.0


class Broker(msgspec.Struct, frozen=True, order=True):
    """A registered broker; `id` 0 is the master."""

    cluster: str
    name: str
    id: int
    address: str

    @property
    def is_master(self) -> bool:
        """Whether it is the master of its name."""
        return self.id == MASTER_ID


class BrokerStatus(msgspec.Struct):
    """A broker's figures by name, or the `error` of asking for them. Rates in messages a second.

    `is_refused`: the error is the broker's answer, for example to an account without permission.
    """

    broker: Broker
    figures: dict[str, str] = {}
    error: str | None = None
    is_refused: bool = False
    in_rate: float = 0.0
    out_rate: float = 0.0

    @property
    def disk_used(self) -> float | None:
        """The used part of the fuller disk, None if it is not reported."""
        ratios = [
            decimal(self.figures.get(key))
            for key in ("commitLogDiskRatio", "consumeQueueDiskRatio")
            if key in self.figures
        ]
        return max(ratios, default=None)

    @property
    def boot_ms(self) -> int:
        """When the broker started, 0 if it is not reported."""
        return number(self.figures.get("bootTimestamp"))

    @property
    def oldest_ms(self) -> int:
        """The store time of the oldest message, 0 if it is not reported."""
        return number(self.figures.get("earliestMessageTimeStamp"))

    @property
    def log_bytes(self) -> int:
        """The size of the commit log."""
        begin, end = (
            number(self.figures.get(f"commitLog{which}Offset")) for which in ("Min", "Max")
        )
        return end - begin


class Sample(msgspec.Struct, array_like=True, frozen=True):
    """Rates of all brokers together, in messages a second, at a time in seconds since 1970.

    They are None in a gap, where no page was open.
    """

    at: float
    in_rate: float | None
    out_rate: float | None


class _Count(msgspec.Struct, frozen=True):
    """A broker's counters at a time of the monotonic clock."""

    at: float
    put: int
    got: int


class Cluster:
    """The brokers that one account administers, with answers that pages share.

    `credentials` sign all requests; None for brokers without accounts. `ssl` encrypts all
    connections. Coroutines raise
    NoNameServerError when no name server answers.
    """

    def __init__(
        self,
        namesrv: str,
        credentials: Credentials | None,
        *,
        ssl: SSLContext | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.namesrv = namesrv
        self.credentials = credentials
        self.admin = AdminClient(namesrv, timeout_s=TIMEOUT_S, credentials=credentials, ssl=ssl)
        self.lookup = MessageLookup(self.admin)
        self.history: deque[Sample] = deque(maxlen=HISTORY_MAX)
        self._monotonic = monotonic
        self._counts: dict[str, _Count] = {}
        self._lags: dict[str, list[Lag]] = {}
        self._lags_at = self._sampled_at = 0.0
        self._brokers = Refreshed(self._read_brokers, BROKERS_AGE_S, monotonic=monotonic)
        self._statuses = Refreshed(self._read_statuses, STATUS_AGE_S, monotonic=monotonic)
        self._snapshot = Refreshed(
            self._read_snapshot, SNAPSHOT_AGE_S, stale=SNAPSHOT_STALE_S, monotonic=monotonic
        )
        self._letters = Refreshed(self.admin.dead_letters.groups, LETTERS_AGE_S)
        self.figures = FiguresOfTopics(monotonic)
        self.jobs = Jobs()

    async def start(self) -> None:
        """Start the client; this sends nothing."""
        await self.admin.start()

    async def stop(self) -> None:
        """End what runs, and close all connections."""
        await self.jobs.stop()
        await self.figures.stop()
        for each in (self._letters, self._snapshot, self._statuses, self._brokers):
            await each.stop()
        await self.admin.stop()

    async def brokers(self) -> list[Broker]:
        """All registered brokers, masters before their slaves."""
        return await self._brokers.get()

    async def masters(self) -> dict[str, BrokerReports]:
        """The masters by broker name."""
        return {
            each.name: BrokerReports(self.admin, each.address)
            for each in await self.brokers()
            if each.is_master
        }

    async def master(self, broker_name: str) -> BrokerReports:
        """One master. Raises BrokerNotFoundError when no such broker is registered."""
        found = (await self.masters()).get(broker_name)
        if found is None:
            raise BrokerNotFoundError(f"no broker {broker_name} with a master is registered")
        return found

    async def statuses(self) -> list[BrokerStatus]:
        """The figures of all brokers."""
        return await self._statuses.get()

    async def snapshot(self) -> Snapshot:
        """Topics and groups with lag; an older one is returned while a new one is read."""
        return await self._snapshot.get()

    async def topic(self, name: str) -> TopicRow | None:
        """A topic of the snapshot, None if there is none; a new one is looked for."""
        found = (await self.snapshot()).topics.get(name)
        return found or (await self._newer_snapshot()).topics.get(name)

    async def group(self, name: str) -> GroupRow | None:
        """A group of the snapshot, None if there is none; a new one is looked for."""
        found = (await self.snapshot()).groups.get(name)
        return found or (await self._newer_snapshot()).groups.get(name)

    async def _newer_snapshot(self) -> Snapshot:
        snapshot = await self.snapshot()
        if time.time() * 1000 - snapshot.at_ms > SEARCH_AGE_MS:
            self._snapshot.forget()
        return await self.snapshot()

    def letters(self) -> list[LetterBacklog] | None:
        """The groups with dead letters as counted last, None before the first count has ended.

        Counting takes a request for each dead-letter topic, so it runs in the background.
        """
        return self._letters.peek()

    def changed(self) -> None:
        """Read topics and groups again for the next page: the console changed something."""
        self._snapshot.forget()
        self._letters.forget()
        self._brokers.forget()

    async def check_signature(self) -> bool:
        """Whether a broker accepts this account's signature; a request that changes nothing.

        Raises BrokerNotFoundError without a master, RemotingError when none of them answers.
        """
        try:
            masters = await self.masters()
        except BrokerError:
            return False  # the name server has accounts, too
        if not masters:
            raise BrokerNotFoundError("no broker with a master is registered")
        fields = UnregisterClientRequestHeader(client_id=self.admin.client_id).fields()
        failure: RemotingError | None = None
        for reports in masters.values():
            try:
                answer = await self.admin.ask(
                    reports.address, RequestCode.UNREGISTER_CLIENT, fields
                )
            except RemotingError as error:
                failure = error
                continue
            return answer.code == ResponseCode.SUCCESS
        assert failure is not None
        raise failure

    # --- reading

    async def _read_brokers(self) -> list[Broker]:
        info = await self.admin.cluster_info()
        return sorted(
            Broker(data.cluster, name, broker_id, address)
            for name, data in info.broker_addr_table.items()
            for broker_id, address in data.broker_addrs.items()
        )

    async def _read_statuses(self) -> list[BrokerStatus]:
        found = await asyncio.gather(*map(self._status, await self.brokers()))
        now, before = time.time(), self._sampled_at
        self._sampled_at = self._monotonic()
        if self.history and self._sampled_at - before > RATE_S:
            self.history.append(Sample(now - STATUS_AGE_S, None, None))
        self.history.append(
            Sample(
                now,
                sum(each.in_rate for each in found),
                sum(each.out_rate for each in found if each.broker.is_master),
            )
        )
        return list(found)

    async def _status(self, broker: Broker) -> BrokerStatus:
        try:
            figures = await BrokerReports(self.admin, broker.address).runtime()
        except CongreveError as error:
            is_refused = isinstance(error, BrokerError)
            return BrokerStatus(broker, error=str(error), is_refused=is_refused)
        in_rate, out_rate = self._rates(broker.address, figures)
        return BrokerStatus(
            broker, figures, in_rate=in_rate if broker.is_master else 0.0, out_rate=out_rate
        )

    def _rates(self, address: str, figures: dict[str, str]) -> tuple[float, float]:
        """Messages a second since the last sample; without a recent one those of ten seconds."""
        now = _Count(
            self._monotonic(),
            number(figures.get("msgPutTotalTodayNow")),
            number(figures.get("msgGetTotalTodayNow")),
        )
        before = self._counts.get(address)
        self._counts[address] = now
        is_recent = before is not None and now.at - before.at <= RATE_S
        if before is None or not is_recent or now.put < before.put or now.got < before.got:
            return _average(figures.get("putTps")), _average(figures.get("getTransferedTps"))
        seconds = max(now.at - before.at, 0.1)
        return (now.put - before.put) / seconds, (now.got - before.got) / seconds

    async def _read_snapshot(self) -> Snapshot:
        masters = await self.masters()
        failures: dict[str, CongreveError] = {}
        tables = await _of_each(masters, read_tables, failures)
        if failures and not tables:
            raise next(iter(failures.values()))
        reading = asyncio.create_task(_of_each(masters, read_lags, failures))
        try:
            await asyncio.wait((reading,), timeout=LAG_WAIT_S)
            if not reading.done():
                # Lag takes a large broker longer: until then, pages show the previous values.
                if self._monotonic() - self._lags_at > SNAPSHOT_STALE_S:
                    self._lags = {}
                self._snapshot.offer(await self._combined(tables, failures))
            self._lags = await reading
        finally:
            reading.cancel()
        self._lags_at = self._monotonic()
        return await self._combined(tables, failures)

    async def _combined(
        self, tables: Mapping[str, BrokerTables], failures: Mapping[str, CongreveError]
    ) -> Snapshot:
        # In a thread, because it takes long for thousands of groups.
        return await asyncio.to_thread(combine, tables.values(), self._lags, _texts(failures))


def _texts(errors: Mapping[str, CongreveError]) -> dict[str, str]:
    return {name: str(error) for name, error in errors.items()}


async def _of_each(
    masters: Mapping[str, BrokerReports],
    read: Callable[[str, BrokerReports], Awaitable[T]],
    failures: dict[str, CongreveError],
) -> dict[str, T]:
    """What `read` returns for each broker by name; errors go into `failures`."""

    async def one(name: str, reports: BrokerReports) -> tuple[str, T] | None:
        try:
            return name, await read(name, reports)
        except CongreveError as error:
            failures[name] = error
            return None

    found = await asyncio.gather(*(one(name, reports) for name, reports in masters.items()))
    return dict(each for each in found if each is not None)


def number(text: str | None) -> int:
    """A counter of a report, 0 if it is missing or no number."""
    try:
        return int(text or 0)
    except ValueError:
        return 0


def decimal(text: str | None) -> float:
    """A figure with a fraction, 0 if it is missing or no number."""
    try:
        return float(text or 0)
    except ValueError:
        return 0.0


def _average(text: str | None) -> float:
    """The first of the averages `10s 60s 600s` of a report."""
    return decimal(next(iter((text or "").split()), None))
