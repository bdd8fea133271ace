"""The metrics that only Congreve has: flushes, threads, the disk, waiting requests."""

import resource
import threading
from collections.abc import Iterator

from congreve.base.steps import portions
from congreve.base.version import __version__
from congreve.broker.config import BrokerConfig
from congreve.broker.figures.put_latency import PutLatency
from congreve.broker.figures.put_times import BOUNDS_US
from congreve.broker.metrics.exposition import Families, Family, Kind, histogram, label_text
from congreve.broker.quota_limits import Use
from congreve.broker.quotas.quotas import Quotas
from congreve.broker.replication.state import ReplicationState
from congreve.broker.serving.message_paths import MessagePaths
from congreve.engine.store import MessageStore
from congreve.remoting.loop.watchdog import Watchdog, thread_cpu_s
from congreve.remoting.transport.guard import ConnectionGuard

GAUGE, COUNTER = Kind.GAUGE, Kind.COUNTER


class OwnNames:
    """The families ``congreve_*`` of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        paths: MessagePaths,
        guard: ConnectionGuard,
        watchdog: Watchdog | None,
        quotas: Quotas,
    ) -> None:
        self._config = config
        self._store = store
        self._paths = paths
        self._guard = guard
        self._watchdog = watchdog
        self._quotas = quotas

    def of_broker(self, trouble: str | None, folded: int, series: int) -> Iterator[Family]:
        """State, and the limit of series; `trouble` is why the broker is not ready."""
        labels = label_text(
            version=__version__,
            backend=self._store.backend.name,
            flush="sync" if self._config.store.sync_flush else "async",
            role=self._config.broker_role,
        )
        yield Family("congreve_info", GAUGE, "Version and backend", [(labels, 1)])
        for name, kind, text, value in (
            ("ready", GAUGE, "1 while the broker takes messages", trouble is None),
            ("metrics_series", GAUGE, "Series of topics and groups in this answer", series),
            ("metrics_folded", GAUGE, "Topics and groups in the rows `other`", folded),
            ("watchdog_alarms_total", COUNTER, "Long turns of the event loop", self._alarms),
        ):
            yield _one(name, kind, text, int(value))

    def of_store(self, disk: tuple[int, int]) -> Iterator[Family]:
        """Flushes, reads from disk, free space; `disk` has the bytes in all and free."""
        store, sync, scrub = self._store, self._store.backend, self._store.scrub
        for name, kind, text, value in (
            ("flush_groups_total", COUNTER, "Flushes that made messages durable", sync.flush_count),
            ("durable_offset_bytes", GAUGE, "End of what is on disk", sync.durable_offset),
            ("log_end_bytes", GAUGE, "End of the commit log", store.log.max_offset),
            ("store_failed", GAUGE, "1 after a disk error", store.health.failed),
            ("store_disk_full", GAUGE, "1 while the disk is too full", store.health.disk_full),
            ("log_damaged", GAUGE, "Damaged parts of the log", len(scrub.damages.open)),
            ("log_damage_found_total", COUNTER, "Damaged parts found", scrub.damages.found),
            ("log_repaired_total", COUNTER, "Damaged parts repaired", scrub.damages.repaired),
            ("scrub_bytes_total", COUNTER, "Bytes read to find damage", scrub.read),
            (
                "cold_reads_total",
                COUNTER,
                "Reads of old messages from disk",
                store.cold_reads.count,
            ),
            ("pool_free_buffers", GAUGE, "Free buffers; 2147483647: no pool", sync.free_buffers),
            ("disk_bytes", GAUGE, "Size of the store's disk", disk[0]),
            ("disk_free_bytes", GAUGE, "Free bytes of it", disk[1]),
        ):
            yield _one(name, kind, text, int(value))

    def of_sends(self, latency: PutLatency) -> Iterator[Family]:
        """Messages of the fast path, and the histogram of the time from request to answer."""
        for name, text, value in (
            ("fast_path_messages", "Messages that compiled code stored", "put_messages"),
            ("fast_path_bytes", "Bytes of their records", "put_bytes"),
            ("fast_path_batches", "Batches that compiled code stored", "put_batches"),
            ("append_lock_holds", "Holds of the append lock", "holds"),
        ):
            total = sum(getattr(path.sends, value) for path in self._paths.fast_paths)
            yield _one(f"{name}_total", COUNTER, text, total)
        ends = [bound / 1e6 for bound in BOUNDS_US]
        yield Family(
            "congreve_put_seconds",
            Kind.HISTOGRAM,
            "Seconds from a send to its answer",
            histogram("", ends, latency.counts(), latency.sum_s),
        )

    def of_replication(self, state: ReplicationState) -> Iterator[Family]:
        """Slaves of a master and their lag, or whether a slave follows its master."""
        if state.role == "SLAVE":
            text = "1 while this slave follows its master"
            yield _one("replication_following", GAUGE, text, int(bool(state.master)))
            return
        yield _one("replication_slaves", GAUGE, "Slaves that follow", len(state.slaves))
        for name, text in (
            ("lag_bytes", "Bytes that a slave has not confirmed"),
            ("lag_ms", "Age of the oldest of them in ms"),
        ):
            rows = [(label_text(slave=each.address), getattr(each, name)) for each in state.slaves]
            yield Family(f"congreve_replication_{name}", GAUGE, text, rows)
        rows = [
            (label_text(slave=each.address), int(state.is_in_sync(each))) for each in state.slaves
        ]
        yield Family("congreve_replication_in_sync", GAUGE, "1 for a slave that is in sync", rows)

    def of_quotas(self) -> Iterator[Family]:
        """Requests that found a quota used up: of each kind of names, and of names with a quota."""
        yield Family(
            "congreve_quota_limited_total",
            COUNTER,
            "Requests that found a quota used up",
            [
                (label_text(kind=str(kind), request=use.name.lower()), count)
                for (kind, use), count in self._quotas.limited().items()
            ],
        )
        yield Family(
            "congreve_quota_name_limited_total",
            COUNTER,
            "Requests that found the quota of this name used up",
            [
                (label_text(kind=str(kind), name=name, request=use.name.lower()), count)
                for (kind, name, _), counts in self._quotas.limited_by_name()
                for use, count in zip(Use, counts, strict=True)
            ],
        )

    def of_network(self) -> Families:
        """Waiting requests, connections, and the CPU time of threads."""
        answers, pulls = self._paths.waiting()
        yield _one("waiting_answers", GAUGE, "Chunks of sends that wait for the disk", answers)
        yield _one("waiting_pulls", GAUGE, "Pulls that wait for messages", pulls)
        counts = self._guard.counts()
        for name, kind, text, key in (
            ("connections", GAUGE, "Open connections", "connections"),
            ("connections_max", GAUGE, "The limit of them", "maxConnections"),
            ("connections_refused_total", COUNTER, "Refused connections", "refusedConnections"),
            ("unfinished_frame_bytes", GAUGE, "Incomplete requests", "unfinishedFrameBytes"),
            ("unread_answer_bytes", GAUGE, "Answers that wait for clients", "unreadAnswerBytes"),
        ):
            yield _one(name, kind, text, counts[key])
        by_grpc = 0
        for part in portions(list(self._guard.connections)):
            by_grpc += sum(connection.speaks_http2 for connection in part)
            yield None
        yield _one("grpc_connections", GAUGE, "Those of them that speak gRPC", by_grpc)
        calls = self._guard.open_calls()
        yield _one("grpc_calls", GAUGE, "Open Telemetry and other calls at the event loop", calls)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        spent = usage.ru_utime + usage.ru_stime
        used = [(label_text(thread=name), seconds) for name, seconds in cpu_by_thread(spent)]
        yield Family("congreve_thread_cpu_seconds_total", COUNTER, "CPU time of a thread", used)
        yield Family("process_cpu_seconds_total", COUNTER, "CPU time of the process", [("", spent)])
        memory = usage.ru_maxrss * 1024
        yield _one("peak_memory_bytes", GAUGE, "Most resident memory since the start", memory)

    @property
    def _alarms(self) -> int:
        return 0 if self._watchdog is None else self._watchdog.alarms


def cpu_by_thread(spent: float) -> Iterator[tuple[str, float]]:
    """The CPU seconds of each named thread, and of all others of a process that used `spent`.

    Threads that Python numbers come and go, for each answer of the metrics port one.
    """
    others = spent
    for thread in threading.enumerate():
        seconds = thread_cpu_s(thread)
        if seconds is not None and not thread.name.startswith("Thread-"):
            others -= seconds
            yield thread.name, seconds
    yield "others", max(others, 0.0)


def _one(name: str, kind: Kind, text: str, value: float) -> Family:
    return Family(f"congreve_{name}", kind, text, [("", value)])
