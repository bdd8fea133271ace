"""The durable messages of a store's topic as Arrow batches, while a broker may write the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from congreve.engine.config import StoreConfig
from congreve.engine.state.broker_name import BrokerNameFile
from congreve.engine.state.checkpoint import QueueCheckpointFile
from congreve.engine.state.confirmed import ConfirmedFile
from congreve.engine.state.identity import IdentityFile
from congreve.engine.state.lock import is_held
from congreve.engine.store_files.files import QueueFile, StoreFiles
from congreve.engine.store_files.queue_scan import entry_windows, gather_batches
from congreve.lake.errors import NotDurableError
from congreve.records.columns.arrow import OF_QUEUE, repeated, schema, to_batch
from congreve.records.columns.builder import RecordColumns
from congreve.records.columns.column import Column
from congreve.records.columns.same_message import OF_MESSAGE, fingerprint

OPTIONAL = ("tags", "keys", "msgId")
"""Columns that are null for messages without such a property."""
DEFAULT_BROKER = "broker-a"
"""The name of a broker whose store does not say it: that of the files that RocketMQ ships."""
BATCH_ROWS = 65_536
BATCH_BYTES = 32 << 20
"""Most rows and bytes of records in a batch, which becomes a row group of each partition."""


def _required(field: pa.Field) -> pa.Field:
    """The field of a table, required where no row is null: it then needs no levels of nulls."""
    if pa.types.is_map(field.type):
        item = pa.field("value", field.type.item_type, nullable=False)
        return pa.field(field.name, pa.map_(field.type.key_type, item), nullable=False)
    return field.with_nullable(field.name in OPTIONAL)


SCHEMA = pa.schema([_required(field) for field in schema()])
"""The columns of a table: those of the Spark source."""


@dataclass(frozen=True)
class DurableQueue:
    """A queue with the messages [file.min_offset, end) on disk."""

    queue_id: int
    file: QueueFile
    end: int


class DurableTopic:
    """One topic of a broker's store, without messages that a power cut may lose.

    After a clean stop it has all messages. Otherwise it ends at Congreve's checkpoint, which a
    broker writes once a minute (`flushConsumeQueueThoroughInterval`).
    """

    def __init__(
        self,
        root: Path,
        topic: str,
        broker: str | None,
        commit_log: Path | None = None,
        *,
        confirmed_only: bool = False,
    ) -> None:
        """Raises StoreFormatError if `root` has no store.

        `broker` is the brokerName, None for the one with which the store was started last.

        With `confirmed_only` it also ends where an elected group has confirmed its master's log:
        no later master cuts these messages.
        """
        self.topic = topic
        self._files = StoreFiles(root, commit_log)
        self._config = StoreConfig(root_dir=str(root))
        own = self._config.own_dir
        self.known_broker = BrokerNameFile(own, read_only=True).load()
        """The brokerName of the store's last start; None before one with this version."""
        self.broker = broker or self.known_broker or DEFAULT_BROKER
        self._confirmed = ConfirmedFile(own, read_only=True) if confirmed_only else None
        self._checkpoint = QueueCheckpointFile(own, read_only=True)
        self._identity = IdentityFile(own, read_only=True)

    def checkpoint_ns(self) -> int:
        """When the store's last checkpoint was written, in ns since 1970; 0 without one."""
        return self._checkpoint.written_ns()

    def store_id(self) -> str:
        """The store's id; empty before its first start with this version. Raises StoreError."""
        return self._identity.load() or ""

    def queues(self) -> list[DurableQueue]:
        """The current queues. Raises StoreFormatError for an unknown topic, NotDurableError if a
        store that was not stopped has no checkpoint of Congreve."""
        self._files.refresh()
        found = {i: self._files.queue(self.topic, i) for i in self._files.queues(self.topic)}
        # Checked after the queues' ends were read: a broker that starts meanwhile changes no end.
        if self._is_stopped():
            return [DurableQueue(i, file, self._end(file)) for i, file in found.items()]
        known = self._checkpoint.load()
        if known is None:
            raise NotDurableError(
                f"{self._files.root} has no checkpoint of Congreve, so what is durable is unknown: "
                "stop the broker cleanly, or wait for the first checkpoint"
            )
        return [
            DurableQueue(i, file, min(self._end(file), known.end_of(self.topic, i)))
            for i, file in found.items()
        ]

    def not_durable(self) -> int:
        """The messages behind the last checkpoint. Raises what queues() raises."""
        return sum(queue.file.max_offset - queue.end for queue in self.queues())

    def _end(self, file: QueueFile) -> int:
        """The end of a queue, or of what the group has confirmed of it."""
        if self._confirmed is None:
            return file.max_offset
        return file.end_within(self._confirmed.load())

    def read(self, queue: DurableQueue, start: int) -> Iterator[pa.RecordBatch]:
        """Messages from offset `start` on, with SCHEMA, in batches of at most BATCH_BYTES.

        Raises CorruptRecordError for a damaged message, StoreFormatError for an expired one.
        """
        gather = RecordColumns(
            [name for name in SCHEMA.names if name not in OF_QUEUE], verify_crc=True
        )
        of_queue = dict(zip(OF_QUEUE, (self.topic, self.broker, queue.queue_id), strict=True))
        windows = entry_windows(queue.file.entries, start, queue.end)
        for _ in gather_batches(
            *(self._files, windows, gather), batch_rows=BATCH_ROWS, batch_bytes=BATCH_BYTES
        ):
            rows = gather.rows
            columns: dict[str, Column | pa.Array] = dict(gather.take())
            for name, value in of_queue.items():
                columns[name] = repeated(value, SCHEMA.field(name).type, rows)
            yield to_batch(columns, SCHEMA, rows)

    def store_time_ms(self, queue: DurableQueue, offset: int) -> int:
        """The store time of one message, in ms since 1970. Raises what read() raises."""
        row = self._row(queue, offset, ("storeTimestamp",))
        return int(row["storeTimestamp"].cast(pa.int64())[0].as_py()) // 1000

    def fingerprint(self, queue: DurableQueue, offset: int) -> int:
        """The fingerprint of one message. Raises what read() raises."""
        return fingerprint(self._row(queue, offset, OF_MESSAGE))

    def _row(self, queue: DurableQueue, offset: int, names: Sequence[str]) -> pa.RecordBatch:
        gather = RecordColumns(list(names))
        windows = entry_windows(queue.file.entries, offset, offset + 1)
        for _ in gather_batches(self._files, windows, gather):
            pass
        return to_batch(gather.take(), schema(names), 1)

    def _is_stopped(self) -> bool:
        held = is_held(str(self._files.root / "lock"))
        return not held and not Path(self._config.abort_path).exists()
