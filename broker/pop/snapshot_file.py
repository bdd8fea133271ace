"""congreve/pops.json: all windows at one record of the journal of pops.

A million windows are a hundred megabytes: no step of a write holds the interpreter's lock for long.
"""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Iterator

import msgspec

from congreve.broker.metadata.state_writer import Changes
from congreve.engine.state.state_file import StateFile
from congreve.remoting.messages import fastjson
from congreve.remoting.messages.body import Body
from congreve.remoting.messages.header import Int64


class Snapshot(Body):
    """Content of pops.json: `windows` (base64) are those of the journal before `next`, or later.

    `at` is the log's end then: a shorter log is another one.
    """

    next: Int64 = 0
    at: Int64 = 0
    windows: bytes = b""


class CopiedWindows(msgspec.Struct, frozen=True):
    """A Snapshot that is not in a file yet; the parts of its windows are as InFlight makes them."""

    next: int
    at: int
    parts: list[bytes]

    def text(self) -> Iterator[bytes]:
        """The file's text, in pieces."""
        yield b'{\n\t"next":%d,\n\t"at":%d,\n\t"windows":"' % (self.next, self.at)
        for part in self.parts:
            yield base64.b64encode(part)
        yield b'"\n}'


class SnapshotWriter(Changes[None]):
    """Writes what `copy` returns; `confirm`, on a thread, raises StoreError if it may not yet."""

    def __init__(
        self,
        file: StateFile,
        copy: Callable[[], Awaitable[CopiedWindows]],
        confirm: Callable[[CopiedWindows], None],
    ) -> None:
        super().__init__(file.path, lambda: None, lambda _: None)
        self._file = file
        self._copy = copy
        self._confirm = confirm

    async def _write_taken(self) -> None:
        copied = await self._copy()
        await asyncio.to_thread(self._replace, copied)

    def _replace(self, copied: CopiedWindows) -> None:
        self._confirm(copied)
        self._file.replace_pieces(copied.text)


def load_snapshot(file: StateFile) -> Snapshot | None:
    """The content of the file, None if there is none. Raises StoreError if it cannot be read."""
    return file.load(lambda text: Snapshot.from_tree(fastjson.loads(text)))
