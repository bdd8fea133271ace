"""Delayed messages that were taken back before their time (RocketMQ 5: TimerMessageStore).

A recall is a record of its own in the log. The queue of these records is the journal: an answer
waits until its record is durable like any message. `congreve/recalls.json` has the recalls whose
delivery time has not passed yet, and the queue offset of the first record that it lacks.
"""

import logging
import os
from bisect import bisect_left, insort

import msgspec
import numpy
from numpy import int64
from numpy.typing import NDArray

from congreve.base.clock import Clock
from congreve.broker.metadata.state_writer import StateWriter
from congreve.engine.results import PutResult, PutStatus
from congreve.engine.state.state_file import StateFile
from congreve.engine.store import MessageStore
from congreve.records.message.message import Host, Record
from congreve.records.message.properties import TIMER_DEL_UNIQUE_KEY, UNIQ_KEY
from congreve.records.message.topics import RECALL_TOPIC, SCHEDULE_TOPIC
from congreve.records.record import decode_record
from congreve.remoting.messages import fastjson
from congreve.remoting.messages.body import Body
from congreve.remoting.messages.header import Int32, Int64

logger = logging.getLogger(__name__)

DURABLE_LIMIT_S = 30.0
RECALLS_MAX = 200_000
"""Recalled messages that wait for their time; a further recall is refused."""
KEEP_MS = 600_000
"""How long after its time a recall is kept: the files that count its message as handled are
written every few seconds."""
QUEUE_ID = 0
TIMED = 0
"""The level of messages with a delivery time."""


class Parked(msgspec.Struct, frozen=True, array_like=True, order=True):
    """A delayed message: its level, its offset and the time in its queue entry, in ms.

    `offset` is the queue offset for a delay level, the physical one for a timed message.
    """

    level: int
    offset: int
    wake_ms: int


class Recalled(Body):
    """Content of recalls.json: `recalls` are those of the journal before `next`."""

    next: Int64 = 0
    levels: list[Int32] = msgspec.field(default_factory=list)
    offsets: list[Int64] = msgspec.field(default_factory=list)
    wakes: list[Int64] = msgspec.field(default_factory=list)

    def rows(self) -> tuple[int, list[Parked]]:
        """`next`, and the recalls. Raises ValueError when the lists differ in length."""
        columns = zip(self.levels, self.offsets, self.wakes, strict=True)
        return self.next, [Parked(*row) for row in columns]


class Recalls:
    """The delayed messages that must not be delivered; owned by the event loop.

    (RocketMQ 5: TimerMessageStore.)
    """

    def __init__(self, store: MessageStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._file = StateFile(
            os.path.join(store.config.own_dir, "recalls.json"), files=store.files
        )
        self._writer = StateWriter(self._file, self._snapshot, self._durable)
        self._next = 0
        self._offsets: dict[int, list[int]] = {}  # by level, sorted
        self._waiting: dict[tuple[int, int], int] = {}  # level and offset: time in the entry
        self._skipped: set[tuple[int, int]] = set()  # of them: delivery has skipped these
        self._timed: NDArray[int64] | None = None
        self._changed = False

    @property
    def writer(self) -> StateWriter:
        """The writer of recalls.json."""
        return self._writer

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, parked: Parked) -> bool:
        return (parked.level, parked.offset) in self._waiting

    # --- the file and the journal

    def load(self) -> None:
        """Read recalls.json and the journal after it; the store is open. Raises StoreError."""
        state = self._file.load(lambda text: Recalled.from_tree(fastjson.loads(text)).rows())
        if state is not None:
            self._next, rows = state
            for row in rows:
                self._note(row)
        queue = self._store.queues.find(RECALL_TOPIC, QUEUE_ID)
        if queue is None or self._next > queue.max:
            self._next = 0
        if queue is None:
            return
        for offset in range(max(self._next, queue.min), queue.max):
            place = self._store.place_of(queue, offset)
            found = None if place is None else self._store.read(place)
            if found is not None:
                self._apply(bytes(decode_record(found).body))
        self._next = queue.max

    def save(self) -> None:
        """Write recalls.json soon if it has changed, without recalls whose time has passed."""
        self._forget_past()
        if self._changed:
            self._writer.changed()

    def _snapshot(self) -> Recalled:
        self._changed = False
        rows = [(level, offset, wake) for (level, offset), wake in self._waiting.items()]
        return Recalled(
            next=self._next,
            levels=[row[0] for row in rows],
            offsets=[row[1] for row in rows],
            wakes=[row[2] for row in rows],
        )

    def _durable(self) -> bool:
        return self._store.wait_final(self._store.log.max_offset, DURABLE_LIMIT_S)

    def _forget_past(self) -> None:
        limit = self._clock.now() - KEEP_MS
        past = {
            key
            for key, wake in self._waiting.items()
            if wake < limit and (key in self._skipped or self._has_expired(*key))
        }
        if not past:
            return
        self._waiting = {key: wake for key, wake in self._waiting.items() if key not in past}
        self._skipped -= past
        self._offsets = {}
        for level, offset in sorted(self._waiting):
            self._offsets.setdefault(level, []).append(offset)
        self._timed, self._changed = None, True

    def _has_expired(self, level: int, offset: int) -> bool:
        if level == TIMED:
            return offset < self._store.log.min_offset
        return offset < self._store.min_offset(SCHEDULE_TOPIC, level - 1)

    # --- recalls

    def put(self, parked: Parked, topic: str, message_id: str, host: Host) -> PutResult:
        """Recall a message, and store the recall; the caller answers when its record is durable."""
        record = Record(
            topic=RECALL_TOPIC,
            body=msgspec.json.encode(parked),
            properties={TIMER_DEL_UNIQUE_KEY: f"{topic}+{message_id}", UNIQ_KEY: message_id},
            queue_id=QUEUE_ID,
            born_timestamp=self._clock.now(),
            born_host=host,
            store_host=host,
        )
        put = self._store.put(record)
        if put.status is PutStatus.PUT_OK:
            self._note(parked)
            self._next = put.queue_offset + 1
            self._changed = True
        return put

    def next_recalled(self, level: int, offset: int) -> int | None:
        """The first recalled offset of a level from `offset` on."""
        offsets = self._offsets.get(level)
        if not offsets:
            return None
        at = bisect_left(offsets, offset)
        return offsets[at] if at < len(offsets) else None

    def all(self) -> set[tuple[int, int]]:
        """Level and offset of all recalled messages."""
        return set(self._waiting)

    def note_skipped(self, level: int, offset: int) -> None:
        """Report that delivery has skipped a recalled message."""
        self._skipped.add((level, offset))

    def timed_offsets(self) -> NDArray[int64]:
        """The recalled physical offsets of timed messages, sorted."""
        if self._timed is None:
            self._timed = numpy.array(self._offsets.get(TIMED, []), int64)
        return self._timed

    def _note(self, parked: Parked) -> None:
        key = parked.level, parked.offset
        if key not in self._waiting:
            insort(self._offsets.setdefault(parked.level, []), parked.offset)
            self._waiting[key] = parked.wake_ms
            self._timed = None

    def _apply(self, body: bytes) -> None:
        try:
            self._note(msgspec.json.decode(body, type=Parked))
        except msgspec.DecodeError as error:
            logger.error("a record of %s cannot be read: %s", RECALL_TOPIC, error)
