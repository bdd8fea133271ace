"""A store that is written as a whole from records with known queue offsets."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
import numpy as np
import numpy.typing as npt

from congreve.base.clock import ManualClock
from congreve.engine.config import StoreConfig
from congreve.engine.errors import StoreError
from congreve.engine.rebuild.copy_records import copy_records, put_blank
from congreve.engine.replication.log_receiver import LogReceiver
from congreve.engine.store import MessageStore
from congreve.io_backends.errors import NoBufferError
from congreve.io_backends.files.file_system import DISK, FileSystem
from congreve.records.layout import BLANK_MIN

PART_BYTES = 1 << 20
DISK_WAIT_S = 60.0

Int64s = npt.NDArray[np.int64]


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
        self._store = MessageStore(
            msgspec.structs.replace(config, root_dir=str(self._building), commit_log_dir=""),
            clock=ManualClock(0),  # no message expires
            files=files,
        )
        self._receiver: LogReceiver
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self._store)
        self._receiver = LogReceiver(self._store)
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

    def append(self, records: bytes, begins: Int64s, ends: Int64s) -> None:
        """Append records: record i is [begins[i], ends[i]) of `records`.

        They keep all but their place in the log. A queue begins at the offset of its first record,
        and its further ones follow without a gap. Raises StoreError when a record does not fit into
        a segment, BackendError when the disk is full.
        """
        done = 0
        while done < len(begins):
            size = int(ends[done] - begins[done])
            left = self._left_in_segment()
            if size + BLANK_MIN > left:
                self._end_segment(left, size)
                continue
            room = self._room(min(max(PART_BYTES, size), left - BLANK_MIN))
            done, taken = copy_records(records, begins, ends, done, room, self._receiver.received)
            self._receiver.take(taken)

    def _left_in_segment(self) -> int:
        size = self._store.config.mapped_file_size_commit_log
        return size - self._receiver.received % size

    def _end_segment(self, left: int, wanted: int) -> None:
        """Fill the rest of the segment, into which a record of `wanted` bytes does not fit."""
        size = self._store.config.mapped_file_size_commit_log
        if left == size:
            raise StoreError(
                f"a message of {wanted} bytes does not fit into a segment of {size}: set "
                "mappedFileSizeCommitLog"
            )
        put_blank(self._room(left))
        self._receiver.take(left)

    def _room(self, size: int) -> memoryview:
        """Memory at the end of the log, once the disk has taken enough of what is before it."""
        while True:
            with suppress(NoBufferError):
                if memory := self._receiver.writable(size):
                    return memory
            written = self._store.log.max_offset
            if not self._store.wait_durable(written, DISK_WAIT_S):
                raise StoreError(f"the disk did not take the log up to {written}")
