"""Follows topics: exports them repeatedly while a broker writes the store."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence

from congreve.lake.errors import NotDurableError
from congreve.lake.export import Exporter

logger = logging.getLogger(__name__)


class Follower:
    """Exports each topic every `lag_s` seconds.

    An export that takes longer is followed by the next one at once.
    """

    def __init__(self, exporters: Sequence[Exporter], lag_s: float) -> None:
        self._exporters = exporters
        self._lag_s = lag_s
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Let run() return after the current commit; for another thread or a signal handler."""
        self._stopped.set()

    def run(self) -> int:
        """Export until stop(); returns the number of rows that were committed.

        If a store has no checkpoint yet, it waits for the first one. It raises all other errors of
        an export: progress is in the tables, so a new follower continues where this one ended.
        """
        committed = 0
        while not self._stopped.is_set():
            begun = time.monotonic()
            for exporter in self._exporters:
                committed += self._export(exporter)
            self._stopped.wait(max(0.0, self._lag_s - (time.monotonic() - begun)))
        return committed

    def _export(self, exporter: Exporter) -> int:
        committed = 0
        try:
            for rows in exporter.commits():
                committed += rows
                if self._stopped.is_set():
                    break
        except NotDurableError as error:
            logger.info("%s", error)
        return committed
