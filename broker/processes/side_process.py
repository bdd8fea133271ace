"""Processes that a broker keeps running beside itself: `lakeTopics`, `consolePort`."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
from collections.abc import Sequence

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0

logger = logging.getLogger(__name__)


class SideProcess:
    """Keeps one process running: started again when it ends, with growing pauses.

    A thread waits for the process; neither the event loop nor a lane does. The process ends with
    this one, however this one ends: its standard input is a pipe that nothing else holds. `name` is
    for the log; the process has `stop_s` seconds to end after SIGTERM.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        niceness: int,
        stop_s: float,
        first_pause_s: float = FIRST_PAUSE_S,
    ) -> None:
        self._name = name
        self._command = list(command)
        self._niceness = niceness
        self._stop_s = stop_s
        self._first_pause_s = first_pause_s
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep, name=name, daemon=True)
        self.starts = 0

    @property
    def pid(self) -> int | None:
        """The running process, None between two."""
        with self._lock:
            return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process, and keep it running."""
        self._thread.start()

    def end(self) -> None:
        """Let the process end, without waiting for that. Idempotent."""
        self._stopping.set()
        with self._lock:
            if self._process is not None:
                self._process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """End the process, and wait for that. Idempotent."""
        self.end()
        if self._thread.is_alive():
            self._thread.join(self._stop_s)
        with self._lock:
            if self._process is not None:
                logger.warning("%s did not end in %.0f s: killed", self._name, self._stop_s)
                self._process.kill()

    def _keep(self) -> None:
        pause = self._first_pause_s
        while True:
            ended = self._run()
            if self._stopping.is_set():
                return
            logger.warning("%s %s; it starts again in %.0f s", self._name, ended, pause)
            if self._stopping.wait(pause):
                return
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def _run(self) -> str:
        """Run the process once; returns how it ended, in words for the log."""
        with self._lock:
            if self._stopping.is_set():
                return "was stopped"
            try:
                process = subprocess.Popen(
                    self._command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
                )
            except OSError as error:
                return f"could not start: {error.strerror}"
            # Only the superuser may lower it below the broker's own.
            niceness = max(self._niceness, os.getpriority(os.PRIO_PROCESS, 0))
            os.setpriority(os.PRIO_PROCESS, process.pid, niceness)
            self._process = process
            self.starts += 1
        code = process.wait()
        assert process.stdin is not None, "it is a pipe"
        process.stdin.close()
        with self._lock:
            self._process = None
        return f"ended with code {code}"
