"""One connection for repairs: requests and answers in both directions."""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import NamedTuple, Self

from congreve.broker.repair.frames import (
    KIND_SIZE,
    Fetch,
    Fetched,
    RepairFrameError,
    frame_in,
    frame_size,
)
from congreve.remoting.loop.background import BackgroundJobs

logger = logging.getLogger(__name__)

ANSWER_S = 5.0
"""How long the other end may take for an answer, in seconds."""


class Records(NamedTuple):
    """An answer: its outcome, where that part of the log ends, and whole records."""

    outcome: int
    end: int
    data: bytes = b""


class Peer:
    """Asks the broker at the other end for records, and answers its requests.

    `answer` runs in a thread. Either end has one request under way at most, and one answer.
    (RocketMQ: none.)
    """

    def __init__(
        self,
        name: str,
        answer: Callable[[Fetch], Records],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.name = name
        self._answer = answer
        self._reader = reader
        self._writer = writer
        self._asking = asyncio.Lock()
        self._asked: tuple[Fetch, asyncio.Future[Records]] | None = None
        self._answering = BackgroundJobs("an answer with records", logger)
        self._is_answering = False

    @classmethod
    async def of(cls, peer: socket.socket, name: str, answer: Callable[[Fetch], Records]) -> Self:
        """One on a connected socket, which it closes at the end of run()."""
        return cls(name, answer, *await asyncio.open_connection(sock=peer))

    async def run(self) -> None:
        """Serve the connection until it ends.

        Raises OSError, EOFError, and RepairFrameError if the other end breaks the protocol.
        """
        reader = self._reader
        try:
            while True:
                head = await reader.read(1)
                if not head:
                    return
                head += await reader.readexactly(KIND_SIZE - 1)
                head += await reader.readexactly(frame_size(head) - KIND_SIZE)
                frame = frame_in(head)
                if isinstance(frame, Fetched):
                    self._take(frame, await reader.readexactly(frame.size))
                elif self._is_answering:
                    raise RepairFrameError("a second request before the first one's answer")
                else:
                    self._is_answering = True
                    self._answering.begin(self._serve(frame))
        finally:
            self.close()
            self._answering.cancel()
            if self._asked is not None and not self._asked[1].done():
                self._asked[1].set_exception(ConnectionError("the connection has ended"))

    def close(self) -> None:
        """End the connection; run() returns."""
        self._writer.close()

    async def fetch(self, request: Fetch) -> Records:
        """Ask the other end. Raises OSError if the connection ends, TimeoutError if it is slow."""
        async with self._asking:
            if self._writer.is_closing():
                raise ConnectionError("the connection has ended")
            answer: asyncio.Future[Records] = asyncio.get_running_loop().create_future()
            self._asked = request, answer
            try:
                self._writer.write(request.encode())
                async with asyncio.timeout(ANSWER_S):
                    await self._writer.drain()
                    return await answer
            except TimeoutError:
                self.close()  # a late answer would be taken for the next one's
                raise
            finally:
                self._asked = None

    def _take(self, head: Fetched, data: bytes) -> None:
        if self._asked is None or self._asked[0].begin != head.begin:
            raise RepairFrameError(f"an answer for {head.begin}, without a request")
        if not self._asked[1].done():
            self._asked[1].set_result(Records(head.outcome, head.end, data))

    async def _serve(self, request: Fetch) -> None:
        try:
            outcome, end, data = await asyncio.to_thread(self._answer, request)
            self._writer.write(Fetched(request.begin, outcome, end, len(data)).encode())
            self._writer.write(data)
            await self._writer.drain()
        except OSError:
            self.close()
        finally:
            self._is_answering = False
