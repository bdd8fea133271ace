"""The table of `mqadmin brokerStatus` (RocketMQ: AdminBrokerProcessor.prepareRuntimeInfo)."""

import time
from collections.abc import Callable, Generator

from congreve.base.byte_size import readable_size
from congreve.base.clock import Clock
from congreve.broker.config import BrokerConfig
from congreve.broker.figures.put_latency import PutLatency
from congreve.broker.figures.stats import BrokerStats, Totals
from congreve.broker.managers import Managers
from congreve.broker.replication.state import ReplicationState
from congreve.broker.serving.message_paths import MessagePaths
from congreve.engine.store import MessageStore
from congreve.remoting.messages.bodies import KVTable
from congreve.remoting.messages.codes import VERSION
from congreve.remoting.transport.guard import ConnectionGuard

VERSION_NAME = "V4_9_4"
AGE_S = 0.1
"""Seconds for which collected figures are reused for answers."""
_POOLS = {"send": 10_000, "pull": 100_000, "query": 20_000}
"""The queues of RocketMQ's thread pools, and how many requests fit there by its defaults."""


class RuntimeInfo:
    """Collects the key-value table of code 28 (RocketMQ: AdminBrokerProcessor.prepareRuntimeInfo).

    `waiting` returns the number of sends that wait for the disk, which the table has as the size of
    the send queue. The other queues are empty, because requests do not wait for threads here, and
    pulls that wait for messages are in none of RocketMQ's queues, either.
    `delayed` returns the next offset and the end of each delay level's queue, `connections` the
    result of ConnectionGuard.counts(), `open_transactions` the number of open half messages,
    `unsaved` the reason why state files cannot be written, or
    None, `replication` the role and lags. `put_latency` has the times of sends since the start,
    `monotonic` returns seconds.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        store: MessageStore,
        stats: BrokerStats,
        clock: Clock,
        waiting: Callable[[], int],
        delayed: Callable[[], dict[int, tuple[int, int]]],
        connections: Callable[[], dict[str, int]],
        open_transactions: Callable[[], int],
        unsaved: Callable[[], str | None],
        put_latency: PutLatency,
        replication: Callable[[], ReplicationState],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._store = store
        self._stats = stats
        self._clock = clock
        self._waiting = waiting
        self._delayed = delayed
        self._connections = connections
        self._open_transactions = open_transactions
        self._unsaved = unsaved
        self._put_latency = put_latency
        self._replication = replication
        self._monotonic = monotonic
        self._boot_ms = clock.now()

    def version(self) -> object:
        """A value that changes when encode_steps() must run again: every AGE_S seconds, and at once
        when the store or a state file becomes unwritable or writable."""
        return int(self._monotonic() / AGE_S), self._store.trouble(), self._unsaved()

    def encode_steps(self) -> Generator[None, None, bytes]:
        """The body of code 28, in steps."""
        table = yield from self.table_steps()
        return KVTable(table={key: str(value) for key, value in table.items()}).encode()

    def disk_space(self) -> tuple[int, int]:
        """Bytes of the store's disk, used and free ones, and the free ones."""
        return self._store.disk_space()

    def table_steps(self) -> Generator[None, None, dict[str, object]]:
        """The figures by their RocketMQ names, in steps."""
        now = yield from self._stats.total_steps()
        sections = (self._general(), self._traffic(now), self._pools(), self._log(), self._disk())
        return {key: value for section in sections for key, value in section.items()}

    def _general(self) -> dict[str, object]:
        seconds = (self._clock.now() - self._boot_ms) // 1000
        minutes, hours, days = seconds // 60 % 60, seconds // 3600 % 24, seconds // 86_400
        trouble, unsaved = self._store.trouble(), self._unsaved()
        return {
            "brokerVersionDesc": VERSION_NAME,
            "brokerVersion": VERSION,
            "bootTimestamp": self._boot_ms,
            "runtime": f"[ {days} days, {hours} hours, {minutes} minutes, {seconds % 60} seconds ]",
            "startAcceptSendRequestTimeStamp": self._config.start_accept_send_request_time_stamp,
            "ioBackend": self._store.backend.name,
            "storeWritable": f"false ({trouble})" if trouble else "true",
            "storeShortages": self._store.health.shortages or "none",
            "logDamaged": len(self._store.scrub.damages.open),
            "logDamagedFound": self._store.scrub.damages.found,
            "logRepaired": self._store.scrub.damages.repaired,
            **self._replication().figures(),
            **self._connections(),
            "stateFilesWritable": f"false ({unsaved})" if unsaved else "true",
        }

    def replication(self) -> ReplicationState:
        """The role, and the slaves or the master."""
        return self._replication()

    def _traffic(self, now: Totals) -> dict[str, object]:
        stats = self._stats
        size = self._store.log.max_offset - self._store.log.min_offset
        return {
            "msgPutTotalYesterdayMorning": stats.put_yesterday_morning,
            "msgPutTotalTodayMorning": stats.put_today_morning,
            "msgPutTotalTodayNow": now.put,
            "msgGetTotalYesterdayMorning": stats.get_yesterday_morning,
            "msgGetTotalTodayMorning": stats.get_today_morning,
            "msgGetTotalTodayNow": now.transferred,
            "putMessageTimesTotal": now.put,
            "putMessageSizeTotal": size,
            "putMessageAverageSize": size / now.put if now.put else 0.0,
            "putMessageFailedTimes": 0,
            "putMessageEntireTimeMax": self._put_latency.max_ms,
            "putMessageDistributeTime": self._put_latency.distribution_text(),
            "getMessageEntireTimeMax": 0,
            "putTps": stats.averages(lambda t: t.put, now),
            "getFoundTps": stats.averages(lambda t: t.found, now),
            "getMissTps": stats.averages(lambda t: t.missed, now),
            "getTotalTps": stats.averages(_pulls, now),
            "getTransferedTps": stats.averages(lambda t: t.transferred, now),
            "getTransferredTps": stats.averages(lambda t: t.transferred, now),  # as 5 spells it
            "putLatency99": self._put_latency.quantile_ms(0.99),
            "putLatency999": self._put_latency.quantile_ms(0.999),
            "openTransactions": self._open_transactions(),
        }

    def _pools(self) -> dict[str, object]:
        table: dict[str, object] = {
            "EndTransactionQueueSize": 0,
            "EndTransactionThreadPoolQueueCapacity": 100_000,
            "dispatchMaxBuffer": 0,
            "pageCacheLockTimeMills": 0,
            "remainTransientStoreBufferNumbs": self._store.backend.free_buffers,
        }
        for name, capacity in _POOLS.items():
            table[f"{name}ThreadPoolQueueSize"] = self._waiting() if name == "send" else 0
            table[f"{name}ThreadPoolQueueCapacity"] = capacity
            table[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = 0
        return table

    def _log(self) -> dict[str, object]:
        seen = self._store.stats()
        return {
            **{
                f"scheduleMessageOffset_{level}": f"{offset},{end}"
                for level, (offset, end) in self._delayed().items()
            },
            "commitLogMinOffset": seen.log_begin,
            "commitLogMaxOffset": seen.log_end,
            "dispatchBehindBytes": 0,
            "remainHowManyDataToFlush": readable_size(seen.unflushed),
            "earliestMessageTimeStamp": self._store.earliest_message_time(),
            "commitLogDiskRatio": seen.commit_log_disk_use,
            f"commitLogDiskRatio_{self._config.store.commit_log_dir}": seen.commit_log_disk_use,
            "consumeQueueDiskRatio": seen.consume_queue_disk_use,
        }

    def _disk(self) -> dict[str, object]:
        total, free = self.disk_space()
        return {
            "commitLogDirCapacity": f"Total : {readable_size(total)},"
            f" Free : {readable_size(free)}.",
        }


def _pulls(totals: Totals) -> int:
    return totals.found + totals.missed


def runtime_info_of(
    managers: Managers,
    paths: MessagePaths,
    guard: ConnectionGuard,
    replication: Callable[[], ReplicationState],
) -> RuntimeInfo:
    """The figures of brokerStatus."""
    return RuntimeInfo(
        config=managers.config,
        store=managers.store,
        stats=managers.stats,
        clock=managers.clock,
        waiting=lambda: paths.waiting()[0],
        delayed=managers.delayed.levels.pending,
        connections=guard.counts,
        open_transactions=lambda: len(managers.transactions.service.open_offsets()),
        unsaved=managers.trouble,
        replication=replication,
        put_latency=PutLatency(lambda: paths.put_times),
    )
