"""The process beside a broker that copies topics into tables: `lakeTopics`."""

from __future__ import annotations

import importlib.util
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence

from congreve.broker.config import BrokerConfig
from congreve.broker.errors import ConfigError

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
STOP_S = 60.0
"""How long a stopped process may need for the commit that it has begun."""
NICENESS = 10
"""Below the broker's threads: an export takes the time that sends leave over."""

logger = logging.getLogger(__name__)


def follow_command(config: BrokerConfig) -> list[str]:
    """The command line of `congreve lake follow` for a broker's settings."""
    store = config.store
    # Half of the lag for the pause between exports, a quarter each for the broker's checkpoint
    # and the export.
    options = {
        "--store": store.root_dir,
        "--commit-log": store.other_commit_log_dir,
        "--warehouse": config.lake_warehouse,
        "--catalog": config.lake_catalog,
        "--broker-name": config.broker_name,
        "--partition": config.lake_partition,
        "--commit-bytes": str(config.lake_commit_bytes),
        "--lag": str(config.lake_lag_millis / 2000),
    }
    repeated = {"--topic": config.lake_topics, "--property": config.lake_properties}
    command = [sys.executable, "-m", "congreve", "lake", "follow", "--stop-with-stdin"]
    command += [part for name, value in options.items() if value for part in (name, value)]
    return command + [
        part for name, all_ in repeated.items() for v in _parts(all_) for part in (name, v)
    ]


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(";") if part.strip()]


class LakeProcess:
    """Keeps one process running: started again when it ends, with growing pauses.

    A thread waits for the process; neither the event loop nor a lane does. The process ends with
    this one, however this one ends: its standard input is a pipe that nothing else holds.
    """

    def __init__(self, command: Sequence[str], first_pause_s: float = FIRST_PAUSE_S) -> None:
        self._command = list(command)
        self._first_pause_s = first_pause_s
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep, name="lake", daemon=True)
        self.starts = 0

    @classmethod
    def of(cls, config: BrokerConfig) -> LakeProcess | None:
        """The process of a broker, None without lakeTopics.

        The store of `config` will write checkpoints as often as the lag needs, because only what a
        checkpoint covers is exported. Raises ConfigError when the extra `lake` is not installed.
        """
        if not config.lake_topics:
            return None
        if importlib.util.find_spec("pyiceberg") is None:
            raise ConfigError("lakeTopics needs pyiceberg: pip install 'congreve[lake]'")
        config.store.flush_consume_queue_thorough_interval = min(
            config.store.flush_consume_queue_thorough_interval, config.lake_lag_millis // 4
        )
        return cls(follow_command(config))

    @property
    def pid(self) -> int | None:
        """The running process, None between two."""
        with self._lock:
            return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process, and keep it running."""
        self._thread.start()

    def stop(self) -> None:
        """End the process after its current commit, and wait for that. Idempotent."""
        self._stopping.set()
        with self._lock:
            if self._process is not None:
                self._process.send_signal(signal.SIGTERM)
        if self._thread.is_alive():
            self._thread.join(STOP_S)
        with self._lock:
            if self._process is not None:
                logger.warning("the export to tables did not end in %d s: killed", STOP_S)
                self._process.kill()

    def _keep(self) -> None:
        pause = self._first_pause_s
        while True:
            ended = self._run()
            if self._stopping.is_set():
                return
            logger.warning("the export to tables %s; it starts again in %.0f s", ended, pause)
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
            os.setpriority(os.PRIO_PROCESS, process.pid, NICENESS)
            self._process = process
            self.starts += 1
        code = process.wait()
        assert process.stdin is not None, "it is a pipe"
        process.stdin.close()
        with self._lock:
            self._process = None
        return f"ended with code {code}"
