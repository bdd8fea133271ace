"""A TCP proxy whose connections are slow, stuck in one or both ways, or cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

PIECE = 64 << 10


class Proxy:
    """Forwards connections to an address; it loses and reorders nothing.

    What it holds back it sends later, unless the connection is cut first.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self.delay_s = 0.0
        """Each piece waits so long, in both ways."""
        self._there = asyncio.Event()
        self._back = asyncio.Event()
        self._open: set[asyncio.StreamWriter] = set()
        self.forward()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """Listen; yields the address."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
            self.cut()

    def forward(self) -> None:
        """Forward all bytes at once, those held back first."""
        self.delay_s = 0.0
        self._there.set()
        self._back.set()

    def hold(self, *, there: bool, back: bool) -> None:
        """Hold back the bytes to the target, those from it, or both; connections stay open."""
        for held, way in ((there, self._there), (back, self._back)):
            if held:
                way.clear()

    def cut(self) -> None:
        """Reset all connections."""
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.target.rpartition(":")
        try:
            there, back = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, back}
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._copy(reader, back, self._there))
                group.create_task(self._copy(there, writer, self._back))
        except* (OSError, EndOfStreamError):
            pass
        finally:
            for each in (writer, back):
                self._open.discard(each)
                each.transport.abort()

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: asyncio.Event
    ) -> None:
        while data := await reader.read(PIECE):
            await way.wait()
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            writer.write(data)
            await writer.drain()
        raise EndOfStreamError


class EndOfStreamError(Exception):
    """One end has closed the connection."""
