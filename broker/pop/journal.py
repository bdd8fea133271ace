"""The journal of pops: what happened to messages that are out, as records of a system topic.

The log gives these records replication, group commit and recovery. An answer that depends on them
waits as one to a send. `congreve/pops.json` has all windows as they were at one record, so that a
start does not read the journal from its beginning, and retention may remove older records.
"""

import asyncio
import logging
import os
from collections.abc import Callable

import msgspec

from congreve.base.clock import Clock
from congreve.base.errors import CongreveError
from congreve.broker.commit.group_commit import GroupCommit
from congreve.broker.commit.recode import recode
from congreve.broker.metadata.state_writer import NotYetError
from congreve.broker.pop.lanes.journal_writer import PopJournalWriter
from congreve.broker.pop.snapshot_file import CopiedWindows, SnapshotWriter, load_snapshot
from congreve.broker.requests.settings import host_bytes
from congreve.engine.errors import StoreError
from congreve.engine.pop.in_flight import InFlight
from congreve.engine.state.state_file import StateFile
from congreve.engine.store import MessageStore
from congreve.records.message.message import Host
from congreve.records.message.topics import POP_TOPIC
from congreve.records.record import decode_record
from congreve.remoting.messages.codes import ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.connection import Connection

logger = logging.getLogger(__name__)

QUEUE_ID = 0
DURABLE_LIMIT_S = 30.0
SNAPSHOT_BYTES = 16 << 20
"""Of the journal, after which a new snapshot is written; more after a larger snapshot."""
SNAPSHOT_MS = 600_000
"""The age of a snapshot after which a further one is written if there were changes."""


class Held(msgspec.Struct, frozen=True):
    """An answer that is sent when the journal has what it says."""

    request: RemotingCommand
    connection: Connection
    answer: RemotingCommand
    waits: bool


class PopJournal:
    """Writes the changes of InFlight to the log, and answers when they are there.

    One event loop owns it. (RocketMQ: PopBufferMergeService, the revive topic.)
    """

    def __init__(
        self, store: MessageStore, in_flight: InFlight, clock: Clock, host: Callable[[], Host]
    ) -> None:
        self._store = store
        self._in_flight = in_flight
        self._clock = clock
        self._host = host
        self.group_commit: GroupCommit | None = None
        self._file = StateFile(os.path.join(store.config.own_dir, "pops.json"), files=store.files)
        self.writer = SnapshotWriter(self._file, self._copy_windows, self._confirm)
        """The writer of pops.json."""
        self._held: list[Held] = []
        self._encoded: list[tuple[Connection, bytes, bool]] = []
        self.records = PopJournalWriter(in_flight, store.log)
        """What appends the records; lanes do so, too."""
        self._refused_because: str | None = None
        self._scheduled = False
        self._closed = False
        self._snapshot_written = 0  # bytes that this run had written when it was made
        self._snapshot_size = 0
        self._snapshot_ms = 0

    # --- changes

    def answer(
        self,
        request: RemotingCommand,
        connection: Connection,
        answer: RemotingCommand,
        *,
        waits: bool = True,
    ) -> None:
        """Send an answer after the entries so far are in the log; if it `waits`, durable there.

        All answers of one iteration of the event loop share a record.
        """
        self._held.append(Held(request, connection, answer, waits))
        self.changed()

    def answer_encoded(self, connection: Connection, answers: bytes, *, waits: bool) -> None:
        """answer() for answers that lanes have encoded."""
        self._encoded.append((connection, answers, waits))
        self.changed()

    def changed(self) -> None:
        """Write the entries so far in this iteration of the event loop."""
        if not self._scheduled and not self._closed:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._write_and_answer)

    def write(self) -> bool:
        """Write the entries so far to the log; False if the store refuses them."""
        if not self.records.pending:
            return True
        self._refused_because = self._store.check_writable()
        if self._refused_because is None:
            queue = self._store.queues.get(POP_TOPIC, QUEUE_ID)
            try:
                self.records.write(queue, host_bytes(self._host()))
            except (CongreveError, MemoryError) as error:
                self._refused_because = str(error) or "out of memory"
        if self._refused_because is not None:
            logger.error("the journal of pops is not written: %s", self._refused_because)
            return False
        self._store.after_append(self.end)
        return True

    @property
    def end(self) -> int:
        """The log's end after the last record."""
        return self.records.end

    @property
    def _since_snapshot(self) -> int:
        return self.records.written - self._snapshot_written

    def _write_and_answer(self) -> None:
        self._scheduled = False
        held, self._held = self._held, []
        written = self.write()
        for each in held:
            self._send(each, written)
        encoded, self._encoded = self._encoded, []
        for connection, answers, waits in encoded:
            self._send_encoded(connection, answers, written, waits)

    def _send(self, held: Held, written: bool) -> None:
        if held.request.is_oneway:
            return
        answer: RemotingCommand | None = held.answer
        if not written:
            answer = held.request.reply(ResponseCode.SERVICE_NOT_AVAILABLE, self._refusal())
        elif held.waits and self.group_commit is not None:
            answer = self.group_commit.answer(held.request, held.connection, held.answer, self.end)
        if answer is not None:
            held.connection.send(answer)

    def _send_encoded(
        self, connection: Connection, answers: bytes, written: bool, waits: bool
    ) -> None:
        if not written:
            refused = recode(answers, ResponseCode.SERVICE_NOT_AVAILABLE, self._refusal())
            connection.write(refused)
        elif waits and self.group_commit is not None:
            self.group_commit.send(connection, answers, self.end)
        else:
            connection.write(answers)

    def _refusal(self) -> str:
        return f"the store refuses the change: {self._refused_because}"

    # --- the file

    def load(self) -> bool:
        """Read pops.json and the journal after it; False if POP was never used.

        Raises StoreError when they cannot be read.
        """
        snapshot = load_snapshot(self._file)
        queue = self._store.queues.find(POP_TOPIC, QUEUE_ID)
        if queue is None:
            return False
        begin = end = read = 0
        log_end = self._store.log.max_offset
        if snapshot is not None and snapshot.next <= queue.max and snapshot.at <= log_end:
            self._in_flight.restore(snapshot.windows)
            begin, end = snapshot.next, snapshot.at
        if begin < queue.min:
            logger.error(
                "records %d to %d of the journal of pops are gone: what was out may come again",
                begin,
                queue.min,
            )
        for offset in range(max(begin, queue.min), queue.max):
            place = self._store.place_of(queue, offset)
            found = None if place is None else self._store.read(place)
            if place is None or found is None:
                logger.error("record %d of the journal of pops cannot be read", offset)
                continue
            body = bytes(decode_record(found).body)
            self._in_flight.replay(body)
            read += len(body)
            end = place + len(found)
        self._in_flight.repeated()
        self.records.continue_at(queue.max, end)
        self._snapshot_written = -read
        return True

    def save(self) -> None:
        """Write the entries for which no answer waits; and pops.json soon if the journal has grown
        enough since."""
        self.write()
        grown = self._since_snapshot >= max(SNAPSHOT_BYTES, 2 * self._snapshot_size)
        old = self._clock.now() - self._snapshot_ms >= SNAPSHOT_MS
        if self._since_snapshot and (grown or old):
            self.writer.changed()

    async def close(self) -> None:
        """Write pops.json if it is out of date and slaves have what it continues, and stop."""
        self._write_and_answer()
        self._closed = True
        shown = self._store.log.shown_end >= self.end
        if self._since_snapshot and not self.records.pending and shown:
            self.writer.changed()
        await self.writer.finish()

    async def _copy_windows(self) -> CopiedWindows:
        """A snapshot; it has some of what changes meanwhile, which the journal repeats."""
        self._write_for_snapshot()
        begin, written = self.records.next, self.records.written
        self._in_flight.begin_snapshot()
        parts = await asyncio.to_thread(list, iter(self._in_flight.next_part, b""))
        self._write_for_snapshot()
        self._snapshot_written = written
        self._snapshot_size, self._snapshot_ms = sum(map(len, parts)), self._clock.now()
        return CopiedWindows(begin, self.end, parts)

    def _write_for_snapshot(self) -> None:
        if not self.write():
            raise StoreError(f"{self._file.path} is not written: {self._refused_because}")

    def _confirm(self, snapshot: CopiedWindows) -> None:
        """Return when no other log can replace the one that the snapshot continues."""
        if not self._store.wait_final(snapshot.at, DURABLE_LIMIT_S):
            raise NotYetError(
                f"{self._file.path} is not written: the records that it continues are not on disk, "
                "or slaves lack them"
            )
