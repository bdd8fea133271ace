"""The metrics of pops, by group and topic."""

from collections import Counter
from collections.abc import Callable, Generator

from congreve.broker.metrics.exposition import Family, Kind, label_text
from congreve.broker.metrics.figures import OTHER
from congreve.broker.pop.service import Pops
from congreve.engine.store import MessageStore
from congreve.records.message.topics import popped_topic

GroupAndTopic = tuple[str, str]
WINDOWS_OF_STEP = 100


class PopNames:
    """The families ``congreve_pop_*`` of one broker; none before the first pop.

    There are rows for `max_rows()` groups and topics; the rest is in the row `other`.
    (RocketMQ 5: PopMetricsManager.)
    """

    def __init__(self, pops: Pops, store: MessageStore, max_rows: Callable[[], int]) -> None:
        self._pops = pops
        self._store = store
        self._max_rows = max_rows

    def families(self) -> Generator[Family | None, None, None]:
        """The families, in steps. A message that comes again counts for its original topic."""
        windows = self._pops.in_flight.all_windows()
        if not windows:
            return
        out: Counter[GroupAndTopic] = Counter()
        ready: Counter[GroupAndTopic] = Counter()
        for number, window in enumerate(windows):
            key = window.group, popped_topic(window.group, window.topic)
            end = self._store.max_offset(window.topic, window.queue_id)
            out[key] += window.out
            ready[key] += max(end - window.next, 0)
            if number % WINDOWS_OF_STEP == WINDOWS_OF_STEP - 1:
                yield None
        again, dead = self._pops.redelivery.again_counts, self._pops.redelivery.dead_counts
        for name, kind, text, counts in (
            ("in_flight", Kind.GAUGE, "Messages that are out", out),
            ("ready", Kind.GAUGE, "Messages that no pop has taken", ready),
            ("redelivered_total", Kind.COUNTER, "Messages that came again", again),
            ("dead_letters_total", Kind.COUNTER, "Messages after their last attempt", dead),
        ):
            yield Family(f"congreve_pop_{name}", kind, text, self._rows(counts, out))
            yield None
        waiting = len(self._pops.waiting)
        text = "Pops that wait for messages"
        yield Family("congreve_waiting_pops", Kind.GAUGE, text, [("", waiting)])

    def _rows(
        self, counts: Counter[GroupAndTopic], keys: Counter[GroupAndTopic]
    ) -> list[tuple[str, float]]:
        own = max(self._max_rows() - 1, 1)
        rows: dict[GroupAndTopic, float] = {}
        for number, key in enumerate(keys):
            row = key if number < own else (OTHER, OTHER)
            rows[row] = rows.get(row, 0) + counts[key]
        return [(label_text(group=group, topic=topic), rows[group, topic]) for group, topic in rows]
