"""The wall clock of a process, which a test sets back or forward while the process runs."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("shifted_clock.c")
SECONDS = struct.Struct("<q")


class ShiftedClock:
    """Shifts the wall clock of a process that starts with `environment`."""

    def __init__(self, folder: Path) -> None:
        """Compile the preloaded library into `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "clock"
        self._file.write_bytes(SECONDS.pack(0))
        library = folder / "shifted_clock.so"
        command = ["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE)]
        subprocess.run(command, check=True)
        self.environment = {"LD_PRELOAD": str(library), "SHIFTED_CLOCK": str(self._file)}

    def shift(self, seconds: int) -> None:
        """Let the process see a clock that is so many seconds fast, or slow if it is negative."""
        with self._file.open("r+b", buffering=0) as file:
            file.write(SECONDS.pack(seconds))
