"""Which segments of the log are deleted: expired ones, and on a full disk others too.

This module only decides; it uses no file and no clock.
"""

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from congreve.engine.config import StoreConfig, parse_hours

#: RocketMQ: DefaultMessageStore's system properties of these names.
DISK_SPACE_WARNING_LEVEL_RATIO = 0.90
DISK_SPACE_CLEAN_FORCIBLY_RATIO = 0.85
#: RocketMQ: MappedFileQueue.DELETE_FILES_BATCH_MAX.
MAX_FILES_A_ROUND = 10
MANUAL_ROUNDS = 20

_HOUR_MS = 3_600_000

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SegmentAge:
    """A segment and the time of its last record."""

    base_offset: int
    last_store_timestamp: int  # ms, of its last record
    is_exported: bool = False  # tables have all of its messages
    is_needed: bool = False  # tables lack some of them


@dataclass(slots=True)
class Retention:
    """Chooses the segments to delete (RocketMQ: CleanCommitLogService)."""

    config: StoreConfig
    manual_rounds: int = 0
    _future: dict[int, int] = field(default_factory=dict)  # when such a segment was first seen

    def request_manually(self) -> None:
        """Delete expired segments in the next rounds, at any hour."""
        self.manual_rounds = MANUAL_ROUNDS

    def disk_full(self, use: float, was_full: bool) -> bool:
        """Whether puts are refused: from a use of 0.90 on, until it has fallen to 0.85 (D26)."""
        if use > DISK_SPACE_WARNING_LEVEL_RATIO:
            return True
        return was_full and use > DISK_SPACE_CLEAN_FORCIBLY_RATIO

    def expired(self, segments: Iterable[SegmentAge], now_ms: int, use: float) -> list[int]:
        """Base offsets to delete in this round, oldest first.

        `segments` are those that may go, in order: all but the one being written. A segment's age
        is that of its last record: a file's mtime changes when a store is copied (D15). It is never
        younger than a later one. Where the clock was ahead, it was written when it is first seen.
        """
        aged = self._aged(segments, now_ms)
        by_hour = time.localtime(now_ms / 1000).tm_hour in parse_hours(self.config.delete_when)
        by_space = use < 0 or use > self.config.disk_max_used_space_ratio / 100
        manually = self.manual_rounds > 0
        if manually:
            self.manual_rounds -= 1
        forced = self.config.clean_file_forcibly_enable and use > DISK_SPACE_CLEAN_FORCIBLY_RATIO
        if not (by_hour or by_space or manually or forced):
            return []
        chosen: list[int] = []
        for segment in aged:
            if segment.is_needed or len(chosen) == MAX_FILES_A_ROUND:
                break
            oldest_kept = now_ms - self._hours(segment) * _HOUR_MS
            if not forced and segment.last_store_timestamp > oldest_kept:
                break
            chosen.append(segment.base_offset)
        return chosen

    def _aged(self, segments: Iterable[SegmentAge], now_ms: int) -> list[SegmentAge]:
        known, self._future = self._future, {}
        aged: list[SegmentAge] = []
        for segment in segments:
            written = segment.last_store_timestamp
            if written > now_ms:
                base = segment.base_offset
                if base not in known:
                    logger.warning(
                        "the log's segment at %d has messages of the future, because the clock was"
                        " ahead: without later messages its age counts from now",
                        base,
                    )
                written = self._future[base] = min(known.get(base, now_ms), now_ms)
            aged.append(replace(segment, last_store_timestamp=written))
        for number in reversed(range(len(aged) - 1)):
            later = aged[number + 1].last_store_timestamp
            if later < aged[number].last_store_timestamp:
                aged[number] = replace(aged[number], last_store_timestamp=later)
        return aged

    def _hours(self, segment: SegmentAge) -> int:
        if segment.is_exported:
            return min(self.config.file_reserved_time, self.config.lake_reserved_time)
        return self.config.file_reserved_time
