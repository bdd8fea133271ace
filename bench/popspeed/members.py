"""Members of a group that pop and acknowledge: members.c, in a process of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec

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


class FailedError(Exception):
    """The members have stopped; the text is why."""


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
        """Run a work of members.c; `begins` is called when what is measured begins."""
        words = [port, topic, group, members, invisible_ms, *work]
        command = [str(self._path), *map(str, words)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            if process.stdout.readline():
                begins()
            result = process.stdout.read()
            why = process.stderr.read()
        if process.returncode:
            raise FailedError(why.strip() or f"members ended with code {process.returncode}")
        return msgspec.json.decode(result, type=Done)
