"""Pulls below the log's beginning: messages of an archive, with some of them in memory."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from congreve.broker.config import BrokerConfig
from congreve.broker.errors import RefusedError
from congreve.broker.metadata.subscription import MessageFilter
from congreve.broker.processes.lake_process import parts_of
from congreve.broker.pull.archive import ArchiveThread, MessageArchive, OpenArchive
from congreve.broker.requests.wait_limit import WaitLimit
from congreve.engine.exported_queues import ExportedQueues
from congreve.engine.read.reader import GetResult, GetStatus
from congreve.engine.state.exported import ExportedFile
from congreve.engine.store import MessageStore
from congreve.records.columns.builder import RecordColumns
from congreve.records.columns.stored import StoredRows
from congreve.remoting.messages.codes import ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import PullMessageRequestHeader

SCANNED_MAX = 16_384
"""Messages that one pull with a filter looks at."""
PARTS = 32
"""A read is this part of the memory for archived messages."""

_TOO_MANY = "too many pulls wait for messages that only tables have: try again"

logger = logging.getLogger(__name__)

T = TypeVar("T")

Queue = tuple[str, int]
"""A topic and a queue id."""


class _Part(NamedTuple):
    """Messages, and the UUID of the table that they were read from."""

    table: str
    rows: StoredRows


@dataclass(frozen=True)
class ArchivedMessages:
    """The answer to a pull from an archive, with the names of GetResult.

    (RocketMQ: GetMessageResult.)
    """

    status: GetStatus
    next_offset: int
    min_offset: int
    max_offset: int
    count: int = 0
    size: int = 0
    suggest_slave: bool = False
    buffers: list[bytes] = field(default_factory=list)


class ArchivedPulls:
    """Answers pulls at offsets that are no longer in the log.

    A thread reads parts of the archive, of at most `memory_bytes` in all; the least recently used
    part is evicted first. Half-way through a part, the next one is read ahead.
    """

    def __init__(
        self, config: BrokerConfig, store: MessageStore, open_archive: OpenArchive
    ) -> None:
        """The limits of an answer are those of messages in memory."""
        file = ExportedFile(store.config.own_dir, files=store.files, read_only=True)
        self._exported = ExportedQueues(store.queues, file)
        opened = partial(open_archive, self._exported)
        self.topics = frozenset(parts_of(config.lake.topics))
        self.thread = ArchiveThread("archive-pulls", opened)
        """Reads for pulls, and offsets."""
        self.queries = ArchiveThread("archive-queries", opened)
        """Reads of many files."""
        self._memory_bytes = config.lake.read_bytes
        self._config = config.store
        self._parts: dict[tuple[Queue, int], _Part] = {}
        self._nbytes = 0
        self._first_offsets: dict[Queue, int] = {}
        self._reads: dict[tuple[Queue, int], asyncio.Task[StoredRows | None]] = {}
        self.limit = WaitLimit()
        """How many pulls may wait."""

    def serve(
        self,
        request: RemotingCommand,
        header: PullMessageRequestHeader,
        wanted: MessageFilter,
        log: GetResult,
        answer: Callable[[GetResult | ArchivedMessages], T],
    ) -> T | Awaitable[T]:
        """`answer` of the messages, at once if they are in memory; of `log` if there are none.

        `log` is the log's result for the offset, which it no longer has. The awaitable raises
        RefusedError if too many pulls wait.
        """
        queue = header.topic, header.queue_id
        ends = log.min_offset, log.max_offset
        offset, count = header.queue_offset, header.max_msg_nums
        found = self._find(queue, offset, count, wanted, ends)
        if found is not None:
            return answer(found)

        async def later() -> T:
            with self.limit.waiting(request) as has_room:
                if not has_room:
                    raise RefusedError(ResponseCode.SYSTEM_BUSY, _TOO_MANY)
                return answer(await self._read(queue, offset, count, wanted, ends) or log)

        return later()

    def has(self, topic: str, offset: int, low: int) -> bool:
        """Whether the archive may have an offset of a queue that begins at `low` in the log."""
        return topic in self.topics and offset < low

    def _find(
        self, queue: Queue, offset: int, count: int, wanted: MessageFilter, ends: tuple[int, int]
    ) -> ArchivedMessages | None:
        """The answer from memory, None if the archive has to be read first.

        `ends` are the first and the next offset of the queue in the log.
        """
        for key, (table, part) in self._parts.items():
            if not (key[0] == queue and self._is_current(queue, table)):
                continue
            if part.first <= offset < part.stop:
                self._parts[key] = self._parts.pop(key)  # now the most recently used
                if 2 * offset >= part.first + part.stop and part.stop < ends[0]:
                    self._read_ahead(queue, part.stop)
                return self._select(part, offset, count, wanted, queue, ends)
        return None

    async def _read(
        self, queue: Queue, offset: int, count: int, wanted: MessageFilter, ends: tuple[int, int]
    ) -> ArchivedMessages | None:
        """The answer after the archive was read; None if it has no message before the log's first.

        Raises RefusedError.
        """
        part = await asyncio.shield(self._start(queue, offset))
        if part is None or part.first >= ends[0]:
            return None
        return self._select(part, max(offset, part.first), count, wanted, queue, ends)

    def stop(self) -> None:
        """Drop all messages, and end the thread."""
        for task in self._reads.values():
            task.cancel()
        self._parts.clear()
        self._nbytes = 0
        self.thread.stop()
        self.queries.stop()

    def _read_ahead(self, queue: Queue, offset: int) -> None:
        if not any(
            known == queue and part.first <= offset < part.stop and self._is_current(queue, table)
            for (known, _), (table, part) in self._parts.items()
        ):
            self._start(queue, offset)

    def _is_current(self, queue: Queue, table: str) -> bool:
        """Whether messages that were read from a table are those of the present queue."""
        return table == self._exported.table(queue[0]) and self._exported.has(*queue)

    def _start(self, queue: Queue, offset: int) -> asyncio.Task[StoredRows | None]:
        """The read of a part; pulls of the same offset share it."""
        key = queue, offset
        task = self._reads.get(key)
        if task is None:
            task = self._reads[key] = asyncio.get_running_loop().create_task(self._part(key))
            task.add_done_callback(lambda done: self._ended(key, done))
        return task

    async def _part(self, key: tuple[Queue, int]) -> StoredRows | None:
        (topic, queue_id), offset = key
        size = max(self._memory_bytes // PARTS, 1)

        def read(archive: MessageArchive) -> tuple[StoredRows | None, int | None, str]:
            rows = archive.read(topic, queue_id, offset, size)
            first = archive.first_offset(topic, queue_id)
            return rows, first, self._exported.table(topic) or ""

        part, first, table = await self.thread.call(read)
        if part is not None:
            self._first_offsets[topic, queue_id] = part.first if first is None else first
            self._keep(key, _Part(table, part))
        return part

    def _ended(self, key: tuple[Queue, int], task: asyncio.Task[StoredRows | None]) -> None:
        del self._reads[key]
        if not task.cancelled() and (error := task.exception()):
            logger.warning("%s from offset %d on was not read: %s", *key, error)

    def _keep(self, key: tuple[Queue, int], part: _Part) -> None:
        before = self._parts.pop(key, None)
        self._nbytes += part.rows.nbytes - (0 if before is None else before.rows.nbytes)
        self._parts[key] = part
        while self._nbytes > self._memory_bytes and len(self._parts) > 1:
            oldest = next(iter(self._parts))
            self._nbytes -= self._parts.pop(oldest).rows.nbytes

    def _select(
        self,
        part: StoredRows,
        offset: int,
        count: int,
        wanted: MessageFilter,
        queue: Queue,
        ends: tuple[int, int],
    ) -> ArchivedMessages:
        most = min(max(count, 1), self._config.max_transfer_count_on_message_in_memory)
        most_bytes = self._config.max_transfer_bytes_on_message_in_memory
        choose = _first if wanted.lets_all_pass else partial(_matching, wanted)
        body, taken, scanned = choose(part, offset - part.first, most, most_bytes)
        return ArchivedMessages(
            GetStatus.FOUND if taken else GetStatus.NO_MATCHED_MESSAGE,
            next_offset=part.first + scanned,
            min_offset=self._first_offsets.get(queue, part.first),
            max_offset=ends[1],
            count=taken,
            size=len(body),
            buffers=[body],
        )


def _first(part: StoredRows, place: int, most: int, most_bytes: int) -> tuple[bytes, int, int]:
    """The messages from `place` on: their records, their number, and where the next one is."""
    begin = int(part.ends[place - 1]) if place else 0
    ends = part.ends[place : place + most]
    taken = max(int(ends.searchsorted(begin + most_bytes, side="right")), 1)
    return part.records[begin : int(ends[taken - 1])], taken, place + taken


def _matching(
    wanted: MessageFilter, part: StoredRows, place: int, most: int, most_bytes: int
) -> tuple[bytes, int, int]:
    """Messages that pass a filter, as _first() has them; without any, where the scan ended."""
    stop = min(len(part.ends), place + SCANNED_MAX)
    places = np.arange(place, stop)
    if wanted.tag_codes is not None:
        codes = np.fromiter(wanted.tag_codes, np.int64)
        places = places[np.isin(part.tags_codes[place:stop], codes)]
    if wanted.records is not None:
        begin = int(part.ends[place - 1]) if place else 0
        columns = RecordColumns(["queueOffset"], records=wanted.records)
        columns.add_records(memoryview(part.records)[begin : int(part.ends[stop - 1])])
        offsets = np.frombuffer(memoryview(columns.take()["queueOffset"].values), np.int64)
        places = np.intersect1d(places, offsets - part.first)
    begins = np.where(places > 0, part.ends[places - 1], 0)
    sizes = np.cumsum(part.ends[places] - begins)
    fit = int(np.searchsorted(sizes, most_bytes, side="right"))
    taken = min(max(fit, 1), most, len(places))
    scanned = int(places[taken - 1]) + 1 if taken < len(places) else stop
    return _joined(part, begins[:taken], part.ends[places[:taken]]), taken, scanned


def _joined(
    part: StoredRows,
    begins: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
) -> bytes:
    if len(begins) and (begins[1:] == ends[:-1]).all():
        return part.records[int(begins[0]) : int(ends[-1])]
    return b"".join(
        part.records[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
    )
