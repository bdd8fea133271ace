"""A store that is written as a whole from messages with known queue offsets."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from congreve.engine.clock import ManualClock
from congreve.engine.config import StoreConfig
from congreve.engine.errors import StoreError
from congreve.engine.results import PutStatus
from congreve.engine.store import MessageStore
from congreve.io_backends.files.file_system import DISK, FileSystem
from congreve.records.message.message import Record


class NewStore:
    """Writes a store into a folder that does not exist yet (RocketMQ has no counterpart).

    It is written below another name, `.restoring` appended, and renamed when the context is left
    without an error, so that what a kill leaves is not taken for a complete store.
    """

    def __init__(self, config: StoreConfig, files: FileSystem = DISK) -> None:
        """A store at `config.root_dir`. Raises StoreError if that folder exists."""
        self._root = Path(config.root_dir)
        self._building = self._root.with_name(self._root.name + ".restoring")
        self._files = files
        for path in (self._root, self._building):
            if files.exists(str(path)):
                raise StoreError(f"{path} exists: write the new store into a new folder")
        self._clock = ManualClock(0)
        self._store = MessageStore(
            msgspec.structs.replace(config, root_dir=str(self._building), commit_log_dir=""),
            clock=self._clock,
            files=files,
        )
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self._store)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)
        if kind is None:
            self._files.rename(str(self._building), str(self._root))

    def put(self, record: Record) -> None:
        """Append a message with its `queue_offset` and `store_timestamp`.

        Messages come in the order of the log. A queue begins at its first message's offset.
        Raises StoreError when the offset is not the next one of its queue, and when the message
        cannot be stored: it is too large for the settings, or the disk is full.
        """
        queue = self._store.queues.get(record.topic, record.queue_id)
        if record.queue_offset != queue.max:
            if queue.max:
                raise StoreError(
                    f"queue {queue.queue_id} of {queue.topic}: offset {record.queue_offset} comes "
                    f"after {queue.max - 1}: messages are missing, or there twice"
                )
            queue.start_at(record.queue_offset)
        self._clock.set(record.store_timestamp)
        done = self._store.put(record)
        if done.status is not PutStatus.PUT_OK:
            raise StoreError(
                f"queue {queue.queue_id} of {queue.topic}: the message at {record.queue_offset} "
                f"was not stored: {done.why or done.status.name}"
            )
