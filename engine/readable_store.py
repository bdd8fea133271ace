"""The reads of a store: by queue offset, physical offset, key and time."""

from collections.abc import Callable, Container, Generator

from congreve.engine.config import StoreConfig
from congreve.engine.errors import StoreError
from congreve.engine.file_sizes import FILLER_SIZE
from congreve.engine.index.index import KeyIndex
from congreve.engine.log.commit_log import CommitLog
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.queue.queue_table import QueueTable
from congreve.engine.read.gather import Limits
from congreve.engine.read.reader import GetResult, Reader
from congreve.engine.recovery.repair import QueueRepair
from congreve.engine.results import QueryResult
from congreve.io_backends.pages import is_in_memory
from congreve.records.filter.record_filter import RecordFilter
from congreve.records.message.topics import NEVER_UNUSED
from congreve.records.record import decode_record


class DamagedEntryError(StoreError):
    """A queue entry does not lead to its record, and the caller did not request a repair."""

    def __init__(self, queue: ConsumeQueue, offset: int) -> None:
        super().__init__(
            f"entry {offset} of queue {queue.queue_id} of {queue.topic} is damaged: try again after"
            " its repair"
        )
        self.queue = queue
        self.offset = offset


class ReadableStore:
    """The reads of an open store, for any thread (RocketMQ: the getters of DefaultMessageStore)."""

    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        queues: QueueTable,
        index: KeyIndex | None,
        repair: QueueRepair,
    ) -> None:
        """`index` is None with messageIndexEnable=false."""
        self.log = log
        self.queues = queues
        self.index = index
        self.repair = repair
        self._reader = Reader(config, log, repair.repair)
        self.on_shown: Callable[[], None] | None = None
        """show_below() calls it on its caller's thread."""

    def show_below(self, physical_offset: int) -> None:
        """Let readers see only the messages before this offset; at first they see all."""
        self.log.show_below(physical_offset)
        if self.on_shown is not None:
            self.on_shown()

    @property
    def limits(self) -> Limits:
        """The limits of one get()."""
        return self._reader.limits

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        tag_codes: frozenset[int] | None = None,
        records: RecordFilter | None = None,
        *,
        repair: bool = True,
    ) -> GetResult:
        """Messages of a queue from `offset` on (RocketMQ: getMessage).

        It repairs a damaged entry, which may take a second; without `repair` it returns the status
        DAMAGED, and the caller passes the entry at `next_offset` to `repairs`.
        """
        queue = self.queues.get(topic, queue_id)
        return self._reader.get(queue, offset, max_count, tag_codes, records, repair)

    def read(self, physical_offset: int) -> memoryview | None:
        """The record that begins at this offset; None if there is no valid one."""
        return self.log.read(physical_offset)

    def record_size(self, physical_offset: int) -> int:
        """Bytes of the record that begins at this offset; 0 if there is no valid one."""
        return len(self.log.read(physical_offset) or b"")

    def shown_record_at(self, physical_offset: int) -> memoryview | None:
        """record_at() without repair, but only for a record that readers see."""
        found = self.record_at(physical_offset, repair=False)
        shown = found is not None and physical_offset + len(found) <= self.log.shown_end
        return found if shown else None

    def record_at(self, physical_offset: int, *, repair: bool = True) -> memoryview | None:
        """read(), but only for a record that its consume queue leads to.

        For offsets from a client: a message's body may hold bytes that look like a record.
        A damaged entry is treated as in place_of().
        """
        found = self.log.read(physical_offset)
        if found is None:
            return None
        record = decode_record(found, verify_crc=False)
        queue = self.queues.find(record.topic, record.queue_id)
        if queue is None:
            return None
        place = self.place_of(queue, record.queue_offset, repair=repair)
        return found if place == physical_offset else None

    def place_of(self, queue: ConsumeQueue, offset: int, *, repair: bool = True) -> int | None:
        """The physical offset of the record of a queue's entry; None without one.

        It repairs a damaged entry, which may take a second; without `repair` it raises
        DamagedEntryError, and the caller passes that entry to `repairs`.
        """
        if not queue.min <= offset < queue.max:
            return None
        if queue[offset][1] == FILLER_SIZE:
            return None  # a repair has found no record for it
        if not self.repair.is_valid(queue, offset):
            if not repair:
                raise DamagedEntryError(queue, offset)
            self.repair.repair(queue, offset, offset + 1)
        place, size, _ = queue[offset]
        return None if size == FILLER_SIZE else place

    def query(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int
    ) -> QueryResult:
        """Records with this key, stored in [begin, end] (RocketMQ: queryMessage)."""
        if self.index is None:
            return QueryResult()
        return self.index.query(topic, key, max_count, begin_ms, end_ms)

    def query_steps(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int
    ) -> Generator[None, None, QueryResult]:
        """query() as a generator: its caller may do other work between two steps."""
        if self.index is None:
            return QueryResult()
        found: QueryResult = yield from self.index.query_steps(
            topic, key, max_count, begin_ms, end_ms
        )
        return found

    def unused_topics(self, used: Container[str]) -> list[str]:
        """Topics with queues that are not in `used` (cleanUnusedTopic)."""
        topics = self.queues.topics()
        return [topic for topic in topics if topic not in used and topic not in NEVER_UNUSED]

    def min_offset(self, topic: str, queue_id: int) -> int:
        """First readable offset; -1 if the queue does not exist (getMinOffsetInQueue)."""
        queue = self.queues.find(topic, queue_id)
        return -1 if queue is None else queue.min

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Offset after the last message that readers see; 0 if the queue does not exist
        (getMaxOffsetInQueue)."""
        queue = self.queues.find(topic, queue_id)
        return 0 if queue is None else self.log.end_of(queue)

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The offset stored at a time (RocketMQ: getOffsetInQueueByTime)."""
        queue = self.queues.find(topic, queue_id)
        if queue is None:
            return 0
        end = self.log.end_of(queue)
        return queue.offset_at_time(timestamp_ms, self._store_time_of, end)

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """Store time of one message in ms; -1 without one."""
        queue = self.queues.find(topic, queue_id)
        if queue is None or not queue.min <= offset < self.log.end_of(queue):
            return -1
        physical_offset, size, _ = queue[offset]
        return self._store_time_of(physical_offset, size)

    def store_time_in_memory(self, topic: str, queue_id: int, offset: int) -> tuple[int, int]:
        """store_time() and -1; without waiting for the disk -1 and the record's physical offset."""
        queue = self.queues.find(topic, queue_id)
        if queue is None or not queue.min <= offset < self.log.end_of(queue):
            return -1, -1
        physical_offset, size, _ = queue[offset]
        segment = self.log.segment_at(physical_offset)
        if segment is None:
            return -1, -1
        start = physical_offset - segment.base_offset
        if not is_in_memory(segment, start, start + size):
            return -1, physical_offset
        return self._store_time_of(physical_offset, size), -1

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """Store time of a queue's first message, -1 without one."""
        return self.store_time(topic, queue_id, self.min_offset(topic, queue_id))

    def earliest_message_time(self) -> int:
        """Store time of the log's first record, -1 without one."""
        return self._store_time_of(self.log.min_offset, 0)

    def _store_time_of(self, physical_offset: int, _size: int) -> int:
        record = self.log.read(physical_offset)
        return -1 if record is None else decode_record(record, verify_crc=False).store_timestamp
