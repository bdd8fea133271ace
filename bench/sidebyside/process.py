"""Figures of the kernel about a process and the machine."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

TICKS = os.sysconf("SC_CLK_TCK")
KIBIBYTE = 1024
MEBIBYTE = 1 << 20
GIBIBYTE = 1 << 30


class ProgramError(Exception):
    """A program has failed; the text is what it said."""


class Memory(msgspec.Struct, frozen=True, rename="camel"):
    """Resident memory in MiB: the process's own, and mapped pages of files."""

    anonymous: float
    file: float


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads so far, in steps of 10 ms (proc(5), stat)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory(pid: int) -> Memory:
    """RssAnon with RssShmem, and RssFile (proc(5), status)."""
    found = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.startswith("Rss"):
            found[name] = int(value.split()[0]) * KIBIBYTE / MEBIBYTE
    return Memory(found["RssAnon"] + found["RssShmem"], found["RssFile"])


@contextmanager
def full_page_cache(folder: Path) -> Iterator[None]:
    """Fill free memory with pages of a sparse file while the block runs.

    A virtual machine returns free memory to its host, and getting it back at a page fault takes
    longer than everything else a broker does with the page. A machine that has run for days has no
    free memory: its page cache recycles pages. Both brokers are measured in that state.
    """
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = next(int(line.split()[1]) for line in lines if line.startswith("MemFree:"))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "page-cache"
    chunk = bytearray(MEBIBYTE)
    try:
        with path.open("w+b", buffering=0) as file:
            # An eighth more: the kernel keeps a reserve, which it would have to get from the host.
            file.truncate(free // 8 * 9 * KIBIBYTE)
            while file.readinto(chunk):
                pass
        yield
    finally:
        path.unlink(missing_ok=True)


def machine() -> dict[str, str | int | float]:
    """Facts about the machine that a reader needs to judge the figures, without names and paths."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": model,
        "cores": os.cpu_count() or 1,
        "memoryGiB": round(total / GIBIBYTE, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "java": _first_line("java", "-version"),
    }


def commit(checkout: Path | None = None) -> str:
    """The commit of a checkout (default: this one), with "+" when files differ from it."""
    here = checkout or Path(__file__).parent
    head = _first_line("git", "-C", str(here), "rev-parse", "--short", "HEAD")
    changed = _first_line("git", "-C", str(here), "status", "--porcelain", "-uno")
    return head + ("+" if changed else "")


def _first_line(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    lines = (done.stdout or done.stderr).splitlines()
    return lines[0] if lines else ""


def output_of(command: list[str], begins: Callable[[], None]) -> str:
    """What a load program prints after its first line, with which it says that what is measured
    begins: then `begins` is called. Raises ProgramError."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        if process.stdout.readline():
            begins()
        result, why = process.stdout.read(), process.stderr.read()
    if process.returncode:
        raise ProgramError(why.strip() or f"{command[0]} ended with code {process.returncode}")
    return result
