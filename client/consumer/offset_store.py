"""Stores of consumed offsets (RocketMQ: RemoteBrokerOffsetStore, LocalFileOffsetStore)."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec

from congreve.base.errors import CongreveError
from congreve.client.checks import check_type
from congreve.client.errors import InvalidSettingError, OffsetFileError
from congreve.client.logs import Log
from congreve.client.message import MessageQueue
from congreve.remoting.errors import BodyError
from congreve.remoting.messages.body import Body

log = Log(__name__)


class OffsetStore(Protocol):
    """Reads and writes the offsets of a group or of one broadcasting client (RocketMQ:
    OffsetStore)."""

    def open(self) -> None:
        """Check at the start that offsets can be read. Raises CongreveError."""

    async def read(self, queue: MessageQueue) -> int | None:
        """The stored offset, None when there is none. Raises CongreveError when it cannot be
        read."""

    async def write(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Store offsets; failures are logged.

        Writes run one after the other: a broker that serves two at once may keep the older one.
        """


class RemoteOffsetStore:
    """Offsets of a group on its brokers (RocketMQ: RemoteBrokerOffsetStore)."""

    def __init__(
        self,
        committed: Callable[[MessageQueue], Awaitable[int | None]],
        commit: Callable[[MessageQueue, int], Awaitable[None]],
    ) -> None:
        self._committed = committed
        self._commit = commit
        self._writing = asyncio.Lock()

    def open(self) -> None:
        """Do nothing: brokers are asked for each queue."""

    async def read(self, queue: MessageQueue) -> int | None:
        """See OffsetStore.read()."""
        return await self._committed(queue)

    async def write(self, offsets: Mapping[MessageQueue, int]) -> None:
        """See OffsetStore.write()."""
        # RocketMQ 4.9.4 makes a group's table of a topic at its first commit; of two first commits
        # at once it may lose one (ConsumerOffsetManager.commitOffset).
        firsts = {(queue.topic, queue.broker_name): queue for queue in offsets}.values()
        others = offsets.keys() - firsts
        async with self._writing:
            for queues in (firsts, others):
                await asyncio.gather(*(self._write(queue, offsets[queue]) for queue in queues))

    async def _write(self, queue: MessageQueue, offset: int) -> None:
        try:
            await self._commit(queue, offset)
        except CongreveError as error:
            log.warning("offset not committed", queue=queue, offset=offset, error=error)


class OffsetTable(Body):
    """The file's JSON, in the format of the Java client (RocketMQ: OffsetSerializeWrapper)."""

    offset_table: dict[MessageQueue, int] = msgspec.field(default_factory=dict)


class LocalOffsetStore:
    """Offsets of one broadcasting client in a file, with the previous version as .bak (RocketMQ:
    LocalFileOffsetStore).

    The path is that of the Java client: ``<folder>/<client id>/<group>/offsets.json``; its `folder`
    is ``~/.rocketmq_offsets``. The file is replaced atomically. When it cannot be read, .bak is
    used.

    Raises InvalidSettingError when the client id cannot be a folder's name.
    """

    def __init__(self, folder: Path, client_id: str, group: str) -> None:
        check_type("local_offsets", folder, Path)
        if "/" in client_id:
            raise InvalidSettingError(
                f"client id {client_id!r} is used as a folder's name: it cannot contain '/'"
            )
        self.path = folder.expanduser() / client_id / group / "offsets.json"
        self.backup_path = self.path.with_name("offsets.json.bak")
        self._offsets: dict[MessageQueue, int] | None = None
        self._is_readable = False  # a damaged file must not replace a good .bak
        self._writing = asyncio.Lock()

    def open(self) -> None:
        """Read the file. Raises OffsetFileError when there are files and none can be read."""
        self._table()

    async def read(self, queue: MessageQueue) -> int | None:
        """See OffsetStore.read(). Raises OffsetFileError as open() does."""
        return self._table().get(queue)

    async def write(self, offsets: Mapping[MessageQueue, int]) -> None:
        """See OffsetStore.write()."""
        async with self._writing:
            table = self._table()
            table.update(offsets)
            try:
                await asyncio.to_thread(self._replace, OffsetTable(offset_table=table).encode())
            except OSError as error:
                log.warning("offsets not written", path=self.path, error=error)

    def _table(self) -> dict[MessageQueue, int]:
        if self._offsets is None:
            self._offsets = self._load()
        return self._offsets

    def _load(self) -> dict[MessageQueue, int]:
        failures = []
        for path in (self.path, self.backup_path):
            try:
                text = path.read_bytes()
                if text.strip():
                    table = OffsetTable.decode(text).offset_table
                    self._is_readable = path == self.path
                    return table
            except FileNotFoundError:
                continue
            except (OSError, BodyError) as error:
                failures.append(f"{path}: {error}")
        if failures:
            raise OffsetFileError("; ".join(failures) + ": repair or delete it")
        return {}

    def _replace(self, text: bytes) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_name("offsets.json.tmp")
        with new.open("wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if self._is_readable:
            self._keep_backup()
        new.replace(self.path)
        self._is_readable = True

    def _keep_backup(self) -> None:
        # A hard link to the old file, renamed to .bak. A file system without hard links keeps no
        # previous version.
        link = self.path.with_name("offsets.json.bak.tmp")
        with suppress(OSError):
            link.unlink(missing_ok=True)
            link.hardlink_to(self.path)
            link.replace(self.backup_path)
