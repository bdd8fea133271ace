"""Where a group's offsets are kept (RocketMQ: RemoteBrokerOffsetStore, LocalFileOffsetStore)."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from congreve.client.checks import check_type
from congreve.client.errors import InvalidSettingError, OffsetFileError
from congreve.client.logs import Log
from congreve.client.message import MessageQueue
from congreve.errors import CongreveError
from congreve.remoting.body import Body
from congreve.remoting.errors import BodyError

log = Log(__name__)


class OffsetStore(Protocol):
    """Reads and keeps how far a group, or one broadcasting client, has come."""

    async def read(self, queue: MessageQueue) -> int | None:
        """Where to go on; None where nothing is known. Raises CongreveError."""

    async def write(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Keep offsets. What fails is logged.

        Writes come one after the other: a broker that serves two at once may keep the older one.
        """


class RemoteOffsetStore:
    """Offsets of a group, which its brokers keep."""

    def __init__(
        self,
        committed: Callable[[MessageQueue], Awaitable[int | None]],
        commit: Callable[[MessageQueue, int], Awaitable[None]],
    ) -> None:
        self._committed = committed
        self._commit = commit
        self._writing = asyncio.Lock()

    async def read(self, queue: MessageQueue) -> int | None:
        return await self._committed(queue)

    async def write(self, offsets: Mapping[MessageQueue, int]) -> None:
        async with self._writing:
            await asyncio.gather(*(self._write(*each) for each in offsets.items()))

    async def _write(self, queue: MessageQueue, offset: int) -> None:
        try:
            await self._commit(queue, offset)
        except CongreveError as error:
            log.warning("offset not committed", queue=queue, offset=offset, error=error)


class OffsetTable(Body):
    """The file's text, as the Java client reads and writes it (OffsetSerializeWrapper)."""

    offset_table: dict[MessageQueue, int] = msgspec.field(default_factory=dict)


class LocalOffsetStore:
    """Offsets of one broadcasting client in a file, with its predecessor beside it as .bak.

    The path is that of the Java client: ``<folder>/<client id>/<group>/offsets.json``; `folder` is
    ``~/.rocketmq_offsets`` there. A file that cannot be read falls back to .bak. Raises
    InvalidSettingError.
    """

    def __init__(self, folder: Path, client_id: str, group: str) -> None:
        check_type("local_offsets", folder, Path)
        if "/" in client_id:
            raise InvalidSettingError(
                f"client id {client_id!r} names a folder: '/' cannot be in it"
            )
        self.path = folder.expanduser() / client_id / group / "offsets.json"
        self.backup_path = self.path.with_name("offsets.json.bak")
        self._offsets: dict[MessageQueue, int] | None = None
        self._writing = asyncio.Lock()

    async def read(self, queue: MessageQueue) -> int | None:
        """Raises OffsetFileError where neither file can be read, but one is there."""
        return self._table().get(queue)

    async def write(self, offsets: Mapping[MessageQueue, int]) -> None:
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
                    return OffsetTable.decode(text).offset_table
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
        if self.path.exists():
            self.path.replace(self.backup_path)
        new.replace(self.path)
