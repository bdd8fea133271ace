"""Options and fixtures of all tests."""

import asyncio
import inspect
import os
import re
import subprocess
import tempfile
import time
from asyncio.events import Handle
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# No deadline for an example: a busy machine must not fail a test.
settings.register_profile("congreve", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("congreve"), max_examples=20)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kill-rounds",
        type=int,
        default=50,
        help="How often a crash test kills (default: 50; `make soak` asks for more).",
    )
    parser.addoption(
        "--quick",
        action="store_true",
        help="Fewer generated examples and repetitions: for `make check`.",
    )


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("quick" if config.getoption("--quick") else "congreve")


@pytest.fixture(scope="session")
def quick(request: pytest.FixtureRequest) -> bool:
    """Whether this run is `make check`: tests of many inputs or rounds take a part of them."""
    found: bool = request.config.getoption("--quick")
    return found


@pytest.fixture(scope="session")
def kill_rounds(request: pytest.FixtureRequest) -> int:
    """Rounds of a crash test."""
    rounds: int = request.config.getoption("--kill-rounds")
    return rounds


COUNTS = pytest.StashKey[Counter[str]]()


@pytest.fixture
def campaign(request: pytest.FixtureRequest) -> Callable[[str, int], None]:
    """Counts the rounds of crash tests; the table is printed at the end of the run."""
    counts = request.config.stash.setdefault(COUNTS, Counter())

    def count(name: str, times: int) -> None:
        counts[name] += times

    return count


NOT_INSTALLED = re.compile(r"not installed: (.+)")


def left_out(skipped: list[pytest.TestReport]) -> str:
    """One line about tests that were skipped because a program or library is not installed."""
    reasons = (str(report.longrepr[2]) for report in skipped if isinstance(report.longrepr, tuple))
    counts = Counter(found[1] for reason in reasons if (found := NOT_INSTALLED.search(reason)))
    if not counts:
        return ""
    what = "; ".join(f"{count} without {name}" for name, count in sorted(counts.items()))
    return f"left out, because it is not installed: {what}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if line := left_out(terminalreporter.stats.get("skipped", [])):
        terminalreporter.write_line(line)
        if summary := os.environ.get("LEFT_OUT"):
            Path(summary).parent.mkdir(parents=True, exist_ok=True)
            Path(summary).write_text(f"{line}\n")
    counts = terminalreporter.config.stash.get(COUNTS, None)
    if counts:
        terminalreporter.section("crash campaign: rounds")
        for name in sorted(counts):
            terminalreporter.write_line(f"{counts[name]:>9,}  {name}")


class CallbackTimes:
    """The CPU time of the longest callback since reset(), and its place."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.longest_s = 0.0
        self._longest: Handle | None = None

    @property
    def place(self) -> str:
        return repr(self._longest)[:300]  # formatted late: the arguments may be large

    @contextmanager
    def measured(self) -> Iterator[None]:
        run = Handle._run

        def timed(handle: Handle) -> None:
            begun = time.thread_time()
            run(handle)
            took = time.thread_time() - begun
            if took > self.longest_s:
                self.longest_s, self._longest = took, handle

        Handle._run = timed  # type: ignore[method-assign]
        try:
            yield
        finally:
            Handle._run = run  # type: ignore[method-assign]


@pytest.fixture
def callback_times() -> CallbackTimes:
    return CallbackTimes()


@pytest.fixture(scope="session")
def image_folder() -> Iterator[Path]:
    """A folder for images of crashed stores, in memory if a file system there exists.

    An image is what a power cut leaves; it cannot show whether recovery syncs its files.
    """
    memory = Path("/dev/shm")
    in_memory = memory.is_dir() and os.access(memory, os.W_OK)
    with tempfile.TemporaryDirectory(dir=memory if in_memory else None) as folder:
        yield Path(folder)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Creates file systems of a given size in bytes; skips if this process may not mount any."""
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
        # A closed store may stay mapped until the garbage collector frees it.
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run `async def` tests on a loop of their own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted}))
    return True
