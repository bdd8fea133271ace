"""A real etcd of one member, as a process on 127.0.0.1."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from ..servers import HOST, accepts, free_port

START_TIMEOUT_S = 120.0


class Etcd:
    """etcd with fast timers: its shortest lease is one second."""

    def __init__(
        self, folder: Path, certificate: tuple[Path, Path] | None = None, authority: Path = Path()
    ) -> None:
        """With a certificate and its key, clients need certificates of the authority."""
        program = shutil.which("etcd")
        if program is None:
            pytest.skip("not installed: etcd")
        self.port = free_port()
        self.url = f"{'https' if certificate else 'http'}://{HOST}:{self.port}"
        peer = f"http://{HOST}:{self.port + 1}"
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "etcd.log"
        self._command = [
            program,
            *("--name", "test", "--data-dir", str(folder / "data")),
            *("--listen-client-urls", self.url, "--advertise-client-urls", self.url),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"test={peer}", "--unsafe-no-fsync"),
            *("--heartbeat-interval", "10", "--election-timeout", "100"),
        ]
        if certificate is not None:
            files = map(str, certificate)
            self._command += [f"--cert-file={next(files)}", f"--key-file={next(files)}"]
            self._command += ["--client-cert-auth", f"--trusted-ca-file={authority}"]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process, and wait until it answers."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not accepts(self.port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"etcd did not start:\n{self.log.read_text()[-2000:]}")
            time.sleep(0.02)

    def send(self, signal_number: int) -> None:
        """Send the process a signal."""
        assert self._process is not None
        self._process.send_signal(signal_number)

    def stop(self) -> None:
        """Kill the process, also one that is paused."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """SIGSTOP: connections are accepted by the system, and nothing is answered."""
        self.send(signal.SIGSTOP)
        assert self._process is not None
        tasks = Path(f"/proc/{self._process.pid}/task")
        deadline = time.monotonic() + START_TIMEOUT_S
        while any(_state(task) != "T" for task in tasks.iterdir()):
            assert time.monotonic() < deadline, "etcd does not stop"
            time.sleep(0.01)

    def resume(self) -> None:
        """SIGCONT."""
        self.send(signal.SIGCONT)


def _state(task: Path) -> str:
    """The state of a thread: T for a stopped one."""
    return (task / "stat").read_text().rpartition(")")[2].split()[0]
