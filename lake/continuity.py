"""Whether a table continues a store's topic, or has the messages of another topic of its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum

import pyarrow as pa

from congreve.engine.state.exported import ExportedQueue
from congreve.lake.durable import DurableQueue, DurableTopic
from congreve.lake.errors import ProgressError
from congreve.lake.progress import LastMessage, LastMessages
from congreve.records.columns.same_message import fingerprint

PLACE = "commitLogOffset"

CURE = (
    "Nothing was exported, and retention keeps the messages that no table has. Set the table aside "
    "with `congreve lake set-aside`, and the export begins a new one; two brokers of one name need "
    "a brokerName or a warehouse each"
)

Noted = Callable[[], Mapping[int, ExportedQueue]]
"""What this store has noted of the topic's table: by queue id, the last message that it knows."""


class _Verdict(Enum):
    SAME = "the last message in the table is the store's"
    OTHER = "it is another message"
    UNKNOWN = "the store does not have it any more"


class Continuity:
    """Compares the last message of each queue in a table with the store's at that offset.

    A topic that is deleted and made again, also by RocketMQ, has its offsets again, and so have two
    brokers of one name. While a message is in the log its content decides: a copy of the log and a
    restored store have it, too. Later this store must have exported or noted it, at its place.
    """

    def __init__(self, topic: DurableTopic, noted: Noted = dict) -> None:
        self._topic = topic
        self._noted = noted
        self._store = topic.store_id()
        self._known: dict[int, tuple[int, LastMessage]] = {}

    def check(
        self,
        table: str,
        ends: Mapping[int, int],
        last: LastMessages | None,
        of_rows: Callable[[Mapping[int, int]], Mapping[int, LastMessage]],
        queues: Sequence[DurableQueue],
        *,
        is_copy: bool = False,
    ) -> dict[int, ExportedQueue]:
        """The queues whose last message in the table is the store's, by queue id.

        `ends` and `last` are the table's; `of_rows` reads the last messages of some queues from its
        rows, because an earlier version did not write `last`. The queues of a copy may not have all
        messages yet. Raises ProgressError if the table has other messages.
        """
        ends = {queue_id: end for queue_id, end in ends.items() if end > 0}
        last = last or LastMessages("", {})
        without = {
            i: end for i, end in ends.items() if i not in last.queues and i not in self._known
        }
        marks = {**last.queues, **(of_rows(without) if without else {})}
        verdicts = dict.fromkeys(ends, _Verdict.UNKNOWN)
        for queue in queues:
            end = ends.get(queue.queue_id, 0)
            if end and not (is_copy and end > queue.file.max_offset):
                mark = marks.get(queue.queue_id)
                verdict = self._compare(queue, end, mark, last.store)
                verdicts[queue.queue_id] = verdict
                if verdict is _Verdict.OTHER:
                    raise ProgressError(self._other(queue, end, table))
        found = [i for i, verdict in verdicts.items() if verdict is _Verdict.SAME]
        if ends and not found and not is_copy:
            raise ProgressError(
                f"whether table {table} has the messages of this store's topic {self._topic.topic} "
                f"cannot be known: the store has the last message of none of its queues. {CURE}"
            )
        return {i: ExportedQueue(ends[i], self._known[i][1].place) for i in found}

    def note(self, rows: pa.RecordBatch) -> None:
        """Remember the last of these rows, which are a queue's and go into the table."""
        row = len(rows) - 1
        mark = LastMessage(rows[PLACE][row].as_py(), fingerprint(rows, row))
        self._known[rows["queueId"][row].as_py()] = rows["queueOffset"][row].as_py() + 1, mark

    def last_messages(self, ends: Mapping[int, int]) -> LastMessages:
        """The last messages at these offsets, for the table."""
        known = {i: self._known[i] for i in ends if i in self._known}
        found = {i: mark for i, (end, mark) in known.items() if end == ends[i]}
        return LastMessages(self._store, found)

    def _compare(
        self, queue: DurableQueue, end: int, mark: LastMessage | None, store: str
    ) -> _Verdict:
        queue_id, place = queue.queue_id, queue.file.place(end - 1)
        if end > queue.file.max_offset:
            return _Verdict.OTHER
        if self._known.get(queue_id, (0, None))[0] == end:
            known = self._known[queue_id][1]
            if known.place == place and (mark is None or mark.fingerprint == known.fingerprint):
                return _Verdict.SAME
        if mark is None:
            return _Verdict.UNKNOWN
        verdict = self._of_place(queue, end, place, mark, store)
        if verdict is _Verdict.SAME:
            here = place if place >= 0 else mark.place
            self._known[queue_id] = end, LastMessage(here, mark.fingerprint)
        return verdict

    def _of_place(
        self, queue: DurableQueue, end: int, place: int, mark: LastMessage, store: str
    ) -> _Verdict:
        is_own = bool(store) and store == self._store
        if place < 0:
            # The queue's file with this entry has expired, but what follows is there.
            is_next = is_own and end <= queue.file.min_offset
            return _Verdict.SAME if is_next else _Verdict.UNKNOWN
        if is_own and place != mark.place:
            return _Verdict.OTHER
        if end > queue.file.min_offset:
            found = self._topic.fingerprint(queue, end - 1)
            return _Verdict.SAME if found == mark.fingerprint else _Verdict.OTHER
        is_noted = self._noted().get(queue.queue_id) == ExportedQueue(end, place)
        return _Verdict.SAME if is_own or is_noted else _Verdict.UNKNOWN

    def _other(self, queue: DurableQueue, end: int, table: str) -> str:
        where, high = f"queue {queue.queue_id} of {self._topic.topic}", queue.file.max_offset
        if end > high:
            what = f"{where} ends at {high}, but the table {table} has its messages up to {end}"
        else:
            what = f"{where} has another message at {end - 1} than the table {table}"
        return (
            f"{what}: the table belongs to another store, or to a deleted topic of this name. "
            f"{CURE}"
        )
