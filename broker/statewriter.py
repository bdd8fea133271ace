"""State files written off the event loop (RocketMQ: ConfigManager.persist).

A manager changes its table in memory; its StateWriter takes a snapshot on the loop, turns it into
text and replaces the file on a thread. Changes that come while a write is under way make one more
write, not one each.
"""

import asyncio
import logging
from collections.abc import Callable

import msgspec

from congreve.engine.errors import StoreError
from congreve.engine.statefile import StateFile
from congreve.remoting import fastjson

logger = logging.getLogger(__name__)


class StateWriter:
    """Keeps one file like the snapshot that `take` returns (a body struct, not edited later).

    `ready` is asked on the thread before the file is replaced: False leaves the old one.
    """

    def __init__(
        self,
        file: StateFile,
        take: Callable[[], msgspec.Struct],
        ready: Callable[[], bool] = lambda: True,
    ) -> None:
        self._file = file
        self._take = take
        self._ready = ready
        self._wanted = False
        self._task: asyncio.Task[None] | None = None

    def changed(self) -> None:
        """Write soon. Without a running loop (while the broker loads) nothing happens."""
        self._wanted = True
        if self._task is not None:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        self._task = loop.create_task(self._write_all())

    async def settled(self) -> None:
        """Returns when all changes so far are on disk (or failed, which was logged)."""
        while self._task is not None:
            await asyncio.shield(self._task)

    async def write(self) -> None:
        """Write now and wait for it."""
        self.changed()
        await self.settled()

    async def _write_all(self) -> None:
        try:
            while self._wanted:
                self._wanted = False
                await asyncio.to_thread(self._replace, self._take())
        finally:
            self._task = None

    def _replace(self, snapshot: msgspec.Struct) -> None:
        if not self._ready():
            logger.warning("%s was not written: its time has not come", self._file.path)
            return
        try:
            self._file.replace(fastjson.dumps_pretty(snapshot))
        except StoreError as error:
            logger.error("%s: the old file stays, the next change tries again", error)
