"""Follows topics: exports them again and again while a broker writes the store."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence

from congreve.lake.errors import NotDurableError
from congreve.lake.export import Exporter

logger = logging.getLogger(__name__)


class Follower:
    """Begins an export of each topic at most `lag_s` seconds after the one before.

    An export that takes longer is followed by the next at once.
    """

    def __init__(self, exporters: Sequence[Exporter], lag_s: float) -> None:
        self._exporters = exporters
        self._lag_s = lag_s
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Let run() return after the present commit; for another thread or a signal handler."""
        self._stopped.set()

    def run(self) -> int:
        """Export until stop(); returns the rows that were committed.

        Waits for the first checkpoint of a store that has none. Raises what an export raises else:
        progress is in the tables, so a new follower continues where this one ended.
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
