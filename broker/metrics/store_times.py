"""Store times of messages that consumers wait for, without waiting for the disk."""

from congreve.engine.store import MessageStore

READS_MAX = 16
"""Reads from disk that one round of questions may start."""


class StoreTimes:
    """Looks up store times; the event loop calls it (RocketMQ: ConsumerLagCalculator).

    An answer is kept while each round asks for the same message. A thread reads messages that are
    not in memory, and a later round has their answer.
    """

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._times: dict[tuple[str, int, int], int] = {}
        self._kept: dict[tuple[str, int, int], int] = {}
        self._reads = 0

    def of(self, topic: str, queue_id: int, offset: int, unknown: int) -> int:
        """The store time in ms of a message of this queue; `unknown` where it is not known yet."""
        key = topic, queue_id, offset
        known = self._times.get(key)
        if known is None:
            known, cold = self._store.store_time_in_memory(topic, queue_id, offset)
            if cold >= 0:
                self._read(cold)
                return unknown
            if known < 0:
                return unknown
        self._kept[key] = known
        return known

    def end_round(self) -> None:
        """Drop the times that this round did not request."""
        self._times, self._kept = self._kept, {}
        self._reads = 0

    def _read(self, physical_offset: int) -> None:
        if self._reads < READS_MAX:
            self._reads += 1
            self._store.cold_reads.fetch(physical_offset, lambda: None)
