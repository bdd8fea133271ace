"""How far the tables of `lakeTopics` are behind the store."""

import logging
from collections.abc import Collection, Generator

from congreve.base.clock import Clock
from congreve.broker.metrics.exposition import Family, Kind, label_text
from congreve.broker.metrics.store_times import StoreTimes
from congreve.engine.errors import StoreError
from congreve.engine.exported_queues import ExportedQueues
from congreve.engine.state.exported import ExportedFile
from congreve.engine.store import MessageStore

logger = logging.getLogger(__name__)


class TableLag:
    """Messages that tables lack, and the age of the oldest of them.

    The exporter notes what the tables have after each commit, for this and for retention.
    """

    def __init__(self, topics: Collection[str], store: MessageStore, clock: Clock) -> None:
        self._topics = topics
        self._store = store
        self._clock = clock
        self._times = StoreTimes(store)
        own_dir = store.config.own_dir
        file = ExportedFile(own_dir, files=store.files, read_only=True)
        self._tables = ExportedQueues(store.queues, file)

    def refresh(self) -> None:
        """Read what the exporter has noted; for a thread that may wait for the disk."""
        try:
            self._tables.refresh()
        except StoreError as error:
            logger.warning("the lag of tables is an old one: %s", error)

    def families(self) -> Generator[Family | None, None, None]:
        """The gauges by topic, in steps."""
        messages: list[tuple[str, float]] = []
        seconds: list[tuple[str, float]] = []
        now = self._clock.now()
        for topic in self._topics:
            behind, oldest = 0, now
            queues = list(self._store.queues.of_topic(topic))
            for queue in queues:
                end = self._tables.end(queue)
                first, stop = max(end, queue.min), self._store.log.end_of(queue)
                if first < stop:
                    behind += stop - first
                    oldest = min(oldest, self._times.of(topic, queue.queue_id, first, now))
                yield None
            if queues:
                labels = label_text(topic=topic)
                messages.append((labels, behind))
                seconds.append((labels, (now - oldest) / 1000))
        self._times.end_round()
        yield Family(
            "congreve_table_lag_messages", Kind.GAUGE, "Messages that a table lacks", messages
        )
        yield Family("congreve_table_lag_seconds", Kind.GAUGE, "Age of the oldest of them", seconds)
