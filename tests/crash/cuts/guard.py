"""Gives the disks of a folder back when the program that made them has died.

`python -m cuts.guard FOLDER`: it waits for the end of standard input, kills the processes that use
files below the folder, and unmounts what is mounted there. Nothing remains after a clean end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path


def uses(process: Path, folder: str) -> bool:
    """Whether a process has an open or mapped file below the folder."""
    try:
        links = [process / "cwd", *(process / "fd").iterdir()]
        files = [os.readlink(link) for link in links]
        files += [line.split(maxsplit=5)[-1] for line in (process / "maps").open()]
    except OSError:  # it has ended
        return False
    return any(file.startswith(folder) for file in files)


def main(folder: str) -> None:
    """Wait, then tidy."""
    sys.stdin.read()
    for process in Path("/proc").glob("[0-9]*"):
        if uses(process, f"{folder}/"):
            with suppress(ProcessLookupError):
                os.kill(int(process.name), signal.SIGKILL)
    mounts = (line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines())
    for mount in reversed([each for each in mounts if each.startswith(f"{folder}/")]):
        subprocess.run(["umount", "--lazy", mount], check=False)


if __name__ == "__main__":
    main(sys.argv[1])
