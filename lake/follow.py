"""Follows topics: exports them repeatedly while a broker writes the store."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence

from congreve.engine.errors import UnknownTopicError
from congreve.engine.state.exported import ExportedFile
from congreve.errors import CongreveError
from congreve.lake.errors import NotDurableError
from congreve.lake.export import Exporter
from congreve.lake.upkeep import Upkeep

logger = logging.getLogger(__name__)


class Follower:
    """Exports each topic every `lag_s` seconds, and keeps each table every `upkeep_s` seconds.

    An export that takes longer is followed by the next one at once.
    """

    def __init__(
        self,
        exporters: Sequence[Exporter],
        lag_s: float,
        upkeep: Sequence[Upkeep] = (),
        upkeep_s: float = 3600.0,
        noted: ExportedFile | None = None,
    ) -> None:
        """`noted` gets the end offsets of the tables, after each commit."""
        self._noted = noted
        self._exporters = exporters
        self._lag_s = lag_s
        self._upkeep = upkeep
        self._upkeep_s = upkeep_s
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Let run() return after the current commit; for another thread or a signal handler."""
        self._stopped.set()

    def run(self) -> int:
        """Export until stop(); returns the number of rows that were committed.

        It waits for stores without a checkpoint and for topics that do not exist yet. An error of
        one topic is logged, and the topic is tried again in the next round; if all topics fail in a
        round, the error is raised. A new follower continues where this one ended, as the tables
        have the progress.
        """
        committed = 0
        upkeep_at = time.monotonic() + self._upkeep_s
        while not self._stopped.is_set():
            begun = time.monotonic()
            failures: list[CongreveError] = []
            for exporter in self._exporters:
                try:
                    self._note(exporter)
                    for rows in exporter.commits():
                        committed += rows
                        self._note(exporter)
                        if self._stopped.is_set():
                            return committed
                except (NotDurableError, UnknownTopicError) as error:
                    logger.info("%s", error)
                except CongreveError as error:
                    logger.error("%s was not exported: %s", exporter.table_name, error)
                    failures.append(error)
            if len(failures) == len(self._exporters):
                raise failures[0]
            if time.monotonic() >= upkeep_at:
                self._keep()
                upkeep_at = time.monotonic() + self._upkeep_s
            self._stopped.wait(max(0.0, self._lag_s - (time.monotonic() - begun)))
        return committed

    def _note(self, exporter: Exporter) -> None:
        """Report to retention the offsets up to which the table has messages."""
        if self._noted is None:
            return
        known = self._noted.load()
        ends = exporter.committed()
        if known.get(exporter.topic) != ends:
            self._noted.replace({**known, exporter.topic: ends})

    def _keep(self) -> None:
        for upkeep in self._upkeep:
            try:
                logger.info("%s: %s", upkeep.table_name, upkeep.run())
            except CongreveError as error:
                logger.error("no upkeep of %s: %s", upkeep.table_name, error)
