"""Follows topics: exports them repeatedly while a broker writes the store."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence

from congreve.base.errors import CongreveError
from congreve.engine.errors import UnknownTopicError
from congreve.engine.state.exported import ExportedFile, ExportedTopic
from congreve.lake.errors import NotDurableError, ProgressError
from congreve.lake.export import Exporter
from congreve.lake.upkeep import Upkeep

logger = logging.getLogger(__name__)


LOOKS = 20
"""How often a follower looks for a checkpoint in the time of its lag."""
SHORTEST_LOOK_S = 0.01


class Follower:
    """Exports each topic about every `lag_s` seconds, and keeps each table every `upkeep_s`.

    An export begins with the first checkpoint of the store after half of `lag_s`, and after twice
    that time without one. Upkeep has the time between exports, one merged file at a time.
    """

    def __init__(
        self,
        exporters: Sequence[Exporter],
        lag_s: float,
        upkeep: Sequence[Upkeep] = (),
        upkeep_s: float = 3600.0,
        noted: ExportedFile | None = None,
        *,
        note_only: bool = False,
    ) -> None:
        """`noted` gets the end offsets of the tables, after each commit.

        With `note_only` it gets those of tables to which others export.
        """
        self._noted = noted
        self._note_only = note_only
        self._exporters = exporters
        self._lag_s = lag_s
        self._upkeep = upkeep
        self._upkeep_s = upkeep_s
        self._keeping: Iterator[None] = iter(())
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
            begun, checkpoints = time.monotonic(), self._checkpoints()
            failures: list[CongreveError] = []
            for exporter in self._exporters:
                try:
                    self._note(exporter)
                    for rows in () if self._note_only else exporter.commits():
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
                self._keeping = self._keep()
                upkeep_at = time.monotonic() + self._upkeep_s
            self._wait(begun, checkpoints)
        return committed

    def _wait(self, begun: float, checkpoints: list[int]) -> None:
        """Return when the next export is due. Steps of an upkeep use the time."""
        pause = max(self._lag_s / LOOKS, SHORTEST_LOOK_S)
        for _ in self._keeping:
            if self._is_due(begun, checkpoints):
                return
        while not self._is_due(begun, checkpoints):
            self._stopped.wait(pause)

    def _is_due(self, begun: float, checkpoints: list[int]) -> bool:
        passed = time.monotonic() - begun
        return (
            self._stopped.is_set()
            or passed >= 2 * self._lag_s
            or (passed >= self._lag_s / 2 and self._checkpoints() != checkpoints)
        )

    def _checkpoints(self) -> list[int]:
        return [exporter.checkpoint_ns() for exporter in self._exporters]

    def _note(self, exporter: Exporter) -> None:
        """Report to retention and to reads of tables what the table has."""
        if self._noted is None:
            return
        try:
            found = exporter.exported(is_copy=self._note_only)
        except (ProgressError, UnknownTopicError):
            self._replace(exporter.topic, ExportedTopic("", {}))
            raise
        self._replace(exporter.topic, found)

    def _replace(self, topic: str, found: ExportedTopic) -> None:
        assert self._noted is not None, "there is a file of notes"
        known = self._noted.load()
        if known.get(topic) != found:
            self._noted.replace({**known, topic: found})

    def _keep(self) -> Iterator[None]:
        """The steps of an upkeep of all tables."""
        for upkeep in self._upkeep:
            try:
                done = yield from upkeep.steps()
                logger.info("%s: %s", upkeep.table_name, done)
            except CongreveError as error:
                logger.error("no upkeep of %s: %s", upkeep.table_name, error)
