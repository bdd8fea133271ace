"""Members of a group that pop and acknowledge: members.c, in a process of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
from sidebyside import process

SOURCE = Path(__file__).with_name("members.c")
MOST = 32
"""Messages of a pop."""


class Done(msgspec.Struct, frozen=True, rename="camel"):
    """What the members did; `cpu` is theirs, in seconds."""

    messages: int
    seconds: float
    cpu: float
    late: tuple[int, int, int, int]
    """In ms: the median, p99, p99.9 and the most; -1 where nothing is late."""
    longest_pop: float
    """In ms, of those that brought messages."""
    came: int
    gone: int
    again: int
    """Messages that came after their acknowledgement was answered."""


class Program:
    """The program, compiled into a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "members"
        subprocess.run(["gcc", "-O2", "-o", str(self._path), str(SOURCE)], check=True)

    def run(
        self,
        port: int,
        topic: str,
        group: str,
        members: int,
        invisible_ms: int,
        *work: str | float,
        begins: Callable[[], None] = lambda: None,
    ) -> Done:
        """Run a work of members.c; `begins` is called when what is measured begins.

        Raises ProgramError.
        """
        words = [port, topic, group, members, invisible_ms, *work]
        command = [str(self._path), *map(str, words)]
        return msgspec.json.decode(process.output_of(command, begins), type=Done)
