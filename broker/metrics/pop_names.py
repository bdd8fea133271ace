"""The metrics of pops, by group and topic."""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from operator import add

from congreve.broker.metrics.exposition import Family, Kind, label_text
from congreve.broker.metrics.figures import OTHER
from congreve.broker.pop.progress import age_of_oldest
from congreve.broker.pop.service import Pops
from congreve.engine.store import MessageStore
from congreve.records.message.topics import is_light, popped_topic

GroupAndTopic = tuple[str, str]
WINDOWS_OF_STEP = 100


class PopNames:
    """The families ``congreve_pop_*`` of one broker; none before the first pop.

    Lite topics count for their parent, and only what is out. There are rows for `max_rows()` groups
    and topics; the rest is in the row `other`.
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
        ages: dict[GroupAndTopic, float] = {}
        for number, window in enumerate(windows):
            key = window.group, popped_topic(window.group, window.topic)
            out[key] += window.out
            if not is_light(window.topic):
                end = self._store.max_offset(window.topic, window.queue_id)
                ready[key] += max(end - window.next, 0)
                if (age_ms := age_of_oldest(window, self._store)) is not None:
                    ages[key] = max(ages.get(key, 0), age_ms / 1000)
            if number % WINDOWS_OF_STEP == WINDOWS_OF_STEP - 1:
                yield None
        again = _of_topics(self._pops.redelivery.again_counts)
        dead = _of_topics(self._pops.redelivery.dead_counts)
        for name, kind, text, values, merged in (
            ("in_flight", Kind.GAUGE, "Messages that are out", out, add),
            ("oldest_seconds", Kind.GAUGE, "Age of the oldest message that is out", ages, max),
            ("ready", Kind.GAUGE, "Messages that no pop has taken", ready, add),
            ("redelivered_total", Kind.COUNTER, "Messages that came again", again, add),
            ("dead_letters_total", Kind.COUNTER, "Messages after their last attempt", dead, add),
        ):
            yield Family(f"congreve_pop_{name}", kind, text, self._rows(values, out, merged))
            yield None
        waiting = len(self._pops.waiting)
        text = "Pops that wait for messages"
        yield Family("congreve_waiting_pops", Kind.GAUGE, text, [("", waiting)])

    def _rows(
        self,
        values: Mapping[GroupAndTopic, float],
        keys: Iterable[GroupAndTopic],
        merged: Callable[[float, float], float],
    ) -> list[tuple[str, float]]:
        own = max(self._max_rows() - 1, 1)
        rows: dict[GroupAndTopic, float] = {}
        for number, key in enumerate(keys):
            row = key if number < own else (OTHER, OTHER)
            rows[row] = merged(rows.get(row, 0), values.get(key, 0))
        return [(label_text(group=group, topic=topic), rows[group, topic]) for group, topic in rows]


def _of_topics(counts: Mapping[tuple[str, str, int], int]) -> Counter[GroupAndTopic]:
    """Counts of queues, added up by group and original topic."""
    added: Counter[GroupAndTopic] = Counter()
    for (group, topic, _), count in counts.items():
        added[group, popped_topic(group, topic)] += count
    return added
