"""What all tests share."""

import asyncio
import inspect
import os
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes is the machine's business: a busy one fails no test.
settings.register_profile("congreve", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("congreve")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kill-rounds",
        type=int,
        default=50,
        help="How often a crash test kills (default: 50; `make soak` asks for more).",
    )


@pytest.fixture(scope="session")
def kill_rounds(request: pytest.FixtureRequest) -> int:
    """Rounds of a crash test."""
    rounds: int = request.config.getoption("--kill-rounds")
    return rounds


COUNTS = pytest.StashKey[Counter[str]]()


@pytest.fixture
def campaign(request: pytest.FixtureRequest) -> Callable[[str, int], None]:
    """Counts what a crash test went through; the table stands at the end of the run."""
    counts = request.config.stash.setdefault(COUNTS, Counter())

    def count(name: str, times: int) -> None:
        counts[name] += times

    return count


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    counts = terminalreporter.config.stash.get(COUNTS, None)
    if counts:
        terminalreporter.section("crash campaign: what was gone through")
        for name in sorted(counts):
            terminalreporter.write_line(f"{counts[name]:>9,}  {name}")


@pytest.fixture(scope="session")
def image_folder() -> Iterator[Path]:
    """For images of crashed stores, in memory where there is a file system in it.

    What a power cut left is in the image: no sync of its recovery can be tried by it.
    """
    memory = Path("/dev/shm")
    in_memory = memory.is_dir() and os.access(memory, os.W_OK)
    with tempfile.TemporaryDirectory(dir=memory if in_memory else None) as folder:
        yield Path(folder)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Makes file systems of so many bytes, where this process may mount one."""
    mounted: list[Path] = []

    def mount(size: int) -> Path:
        disk = tmp_path / f"disk-{len(mounted)}"
        disk.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(disk)]
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            pytest.skip("no file system may be mounted here")
        mounted.append(disk)
        return disk

    yield mount
    for disk in mounted:
        # A closed store may be mapped until the collector has seen it.
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run `async def` tests on a loop of their own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted}))
    return True
