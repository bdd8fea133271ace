"""A network link between two processes that a test delays, cuts, or holds in one direction."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from enum import Enum

PIECE = 64 << 10


class Direction(Enum):
    """A direction in which bytes pass a link."""

    THERE = "there"
    """From the side that connects."""
    BACK = "back"


class Link:
    """Forwards connections to an address of 127.0.0.1; it never reorders bytes.

    What a held direction carries waits, and arrives late: connections stay half open meanwhile.
    """

    def __init__(self, target_port: int, host: str = "127.0.0.1", port: int = 0) -> None:
        self._target = ("127.0.0.1", target_port)
        self._listener = socket.create_server((host, port))
        self.address = "{}:{}".format(*self._listener.getsockname())
        self.delay_s = 0.0
        """How long each piece waits."""
        self._open = {way: asyncio.Event() for way in Direction}
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.release()

    async def start(self) -> None:
        """Forward, on the running loop."""
        self._server = await asyncio.start_server(self._serve, sock=self._listener)

    async def stop(self) -> None:
        """Close the port and all connections."""
        if self._server is not None:
            self._server.close()
        self._listener.close()
        self.release()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def hold(self, *ways: Direction) -> None:
        """Let nothing pass in these directions."""
        for way in ways or tuple(Direction):
            self._open[way].clear()

    def release(self) -> None:
        """Let everything pass at once."""
        self.delay_s = 0.0
        for way in self._open.values():
            way.set()

    def cut(self) -> None:
        """Reset all connections, in the middle of what they carry."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        ends = {writer}
        self._writers.add(writer)
        try:
            there, back = await asyncio.open_connection(*self._target)
            ends.add(back)
            self._writers.add(back)
            await asyncio.gather(
                self._copy(reader, back, Direction.THERE), self._copy(there, writer, Direction.BACK)
            )
        except OSError:
            pass
        finally:
            self._writers -= ends
            for each in ends:
                each.transport.abort()

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Direction
    ) -> None:
        while data := await reader.read(PIECE):
            await self._open[way].wait()
            await asyncio.sleep(self.delay_s)
            writer.write(data)
            await writer.drain()
        await self._open[way].wait()
        with contextlib.suppress(OSError):
            writer.write_eof()
