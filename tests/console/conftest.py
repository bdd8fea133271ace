"""A running broker for the commands, and a way to run the command as a user does."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.console.commands import KILLED_AT, TIMEOUT_S, command_forks


class Daemon:
    """`congreve ...` in a process of its own; the constructor returns after its ready line."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "congreve", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        assert self.process.stdout is not None
        self.ready = self.process.stdout.readline().strip()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=TIMEOUT_S)
        return self.process.returncode


def congreve(
    *arguments: str, stdin: str = "", namesrv: str = "", killed_at: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, or until it sends the request of this number."""
    environment = {**os.environ, **({"NAMESRV_ADDR": namesrv} if namesrv else {})}
    if killed_at:
        environment[KILLED_AT] = str(killed_at)
    return command_forks().run(arguments, stdin, environment)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def running(data: Path) -> Iterator[Daemon]:
    daemon = Daemon("run", "--data", str(data), "--port", "0", "--namesrv-port", "0")
    yield daemon
    assert daemon.stop() == 0


@pytest.fixture(scope="module")
def namesrv(running: Daemon) -> str:
    return running.ready.split("name server ")[1].split(",")[0]
