"""Messages that retention has removed from the log, and the threads that read them.

The broker uses this interface only; `congreve.lake` implements it with tables.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol, TypeVar

from congreve.base.errors import CongreveError
from congreve.broker.config import BrokerConfig
from congreve.broker.errors import ConfigError, RefusedError
from congreve.engine.exported_queues import ExportedQueues
from congreve.remoting.messages.codes import ResponseCode

if TYPE_CHECKING:
    # numpy is loaded by brokers that read tables only.
    from congreve.records.columns.stored import StoredRows

T = TypeVar("T")

WAITING_MAX = 256
"""Reads that may wait for a thread; further ones are refused, and clients try again."""


class MessageArchive(Protocol):
    """Messages by queue offset, time, key and physical offset; one thread uses it.

    Every method may wait for the disk or the network, and raises CongreveError or OSError.
    """

    def first_offset(self, topic: str, queue_id: int) -> int | None:
        """The offset of a queue's first message, None if there is none."""

    def first_time(self, topic: str, queue_id: int) -> int | None:
        """Store time in ms of a queue's first message, None if there is none."""

    def read(self, topic: str, queue_id: int, offset: int, max_bytes: int) -> StoredRows | None:
        """The messages from the first one at or after `offset` on, about `max_bytes` of them."""

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int | None:
        """The first offset stored at or after a time, None if all messages are older."""

    def record_at(self, physical_offset: int) -> bytes | None:
        """The record that began at this physical offset."""

    def query(
        self,
        topic: str,
        key: str,
        max_count: int,
        max_bytes: int,
        times_ms: tuple[int, int],
        log_begins: Mapping[int, int],
    ) -> list[bytes]:
        """The newest records with a key, stored in a time with both ends, that the log lacks.

        It has the messages of queues from `log_begins` on. The last record may exceed `max_bytes`.
        """


OpenArchive = Callable[[ExportedQueues], MessageArchive]
"""Opens an archive that has messages of the exported queues."""


def checked_archive(config: BrokerConfig, archive: OpenArchive | None) -> OpenArchive | None:
    """`archive`, which a broker with lakeRetention needs. Raises ConfigError."""
    if config.lake.retention and archive is None:
        raise ConfigError(
            "lakeRetention=true: only `congreve broker` and congreve.serve read tables"
        )
    return archive


class ArchiveThread:
    """One thread that reads one archive, which it opens at its first call.

    At most WAITING_MAX calls wait for it.
    """

    def __init__(self, name: str, open_archive: Callable[[], MessageArchive]) -> None:
        self._open_archive = open_archive
        self._archive: MessageArchive | None = None
        self._waiting = 0
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def call(self, read: Callable[[MessageArchive], T]) -> T:
        """The result of `read`. Raises RefusedError if it fails, or if too many wait."""
        if self._waiting >= WAITING_MAX:
            raise RefusedError(
                ResponseCode.SYSTEM_BUSY,
                f"{WAITING_MAX} reads of messages that only tables have are waiting: try again",
            )
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._executor, self._call, read)
        except (CongreveError, OSError) as error:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"the tables cannot be read: {error}"
            ) from error
        finally:
            self._waiting -= 1

    def _call(self, read: Callable[[MessageArchive], T]) -> T:
        if self._archive is None:
            self._archive = self._open_archive()
        return read(self._archive)

    def stop(self) -> None:
        """End the thread after its present call."""
        self._executor.shutdown(wait=False, cancel_futures=True)
