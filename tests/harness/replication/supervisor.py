"""Starts brokers again that have stopped, as systemd does."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

from ..servers import BrokerServer

LOOK_S = 0.05


class Supervisor:
    """Watches brokers by name, or by address. `command` is for a shell that has it in its
    environment as `variable`: it stops that broker."""

    def __init__(
        self,
        brokers: Mapping[str, BrokerServer],
        folder: Path,
        *,
        starts: bool = True,
        variable: str = "BROKER",
    ) -> None:
        self._brokers = brokers
        self._folder = folder
        self._starts = starts
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.command = f"echo ${variable} >>{folder}/stopped && kill $(cat {folder}/${variable})"
        for name in brokers:
            self._note(name)

    def stopped(self) -> list[str]:
        """The brokers that the command has stopped, in order."""
        path = self._folder / "stopped"
        return path.read_text().split() if path.exists() else []

    def __enter__(self) -> Supervisor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _note(self, name: str) -> None:
        process = self._brokers[name].process
        assert process is not None
        (self._folder / name).write_text(str(process.pid))

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_S):
            for name, broker in self._brokers.items():
                assert broker.process is not None
                if self._starts and broker.process.poll() is not None:
                    broker.check_loop()
                    broker.spawn()
                    self._note(name)
