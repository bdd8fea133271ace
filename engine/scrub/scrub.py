"""The scrub: a thread that reads the whole log slowly, and notes what is damaged."""

import logging
import threading
import time
from collections.abc import Callable

from congreve.engine.config import StoreConfig
from congreve.engine.log.commit_log import CommitLog
from congreve.engine.queue.queue_table import QueueTable
from congreve.engine.recovery.recovery import RecoveryReport
from congreve.engine.recovery.repair import QueueRepair
from congreve.engine.rounds import Rounds, StoreThread
from congreve.engine.scrub.damage import Damage, Damages
from congreve.engine.scrub.examiner import LogExaminer
from congreve.engine.scrub.record_repair import RecordRepair
from congreve.engine.state.found_damage import FoundDamage
from congreve.io_backends.files.file_system import FileSystem

LOOK_S = 1.0
"""How often the thread looks whether a pass is due, in seconds."""
FIRST_S = 60.0
"""When the first pass begins, in seconds after the start, unless scrubInterval is shorter."""

logger = logging.getLogger(__name__)


class LogScrub(StoreThread):
    """Reads the log from its beginning to its end, at scrubBytesPerSecond.

    A pass begins scrubInterval after the one before. It looks at once where `congreve store verify`
    has found damage. (RocketMQ has no counterpart.)
    """

    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        queues: QueueTable,
        repair: QueueRepair,
        files: FileSystem,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__("scrub")
        self.read = 0
        """Bytes that were read since the start."""
        self.passes = 0
        """How often it has come to the end of the log."""
        self._config = config
        self._log = log
        self.damages = Damages()
        self.examiner = LogExaminer(log, files)
        self.records = RecordRepair(log, queues, repair, files)
        self._found_elsewhere = FoundDamage(config.own_dir, files)
        self._now = monotonic
        self._passed: list[int] = []  # where recovery has passed damage
        self._unnamed: int | None = None  # from here on it has passed more than it names
        self._looking = threading.Lock()
        self._unchecked_end = 0

    def begin_with(self, found: RecoveryReport) -> None:
        """Look first at the places where recovery has passed damage.

        Until the first pass has found all whole, pulls check what was on disk before the start.
        """
        self._passed = sorted(found.damaged_places)
        if found.damaged > len(self._passed):
            self._unnamed = found.damaged_places[-1]
        self._unchecked_end = self._log.max_offset
        self._log.check_below(self._unchecked_end)

    @property
    def passed(self) -> int | None:
        """The first damage that recovery has passed, and that `damages` does not have.

        After look_first() that is damage of what is not confirmed and on disk, or more damage than
        is remembered.
        """
        places = [*self._passed[:1], *([] if self._unnamed is None else [self._unnamed])]
        return min(places, default=None)

    def whole_end(self, end: int) -> int:
        """The end of the log, `end`, or of its part before the first damage that is known."""
        found = [each.begin for each in self.damages.open[:1]]
        return min([end, *found, *([] if self.passed is None else [self.passed])])

    def _run(self) -> None:
        a_pass = Rounds("the scrub of the log", self._pass)
        look = Rounds("the look at what was found in the files", self._look_where_told)
        Rounds("the look at what recovery found", self.look_first)()
        due = self._now() + min(FIRST_S, self._config.scrub_interval / 1000)
        while not self._stopping.wait(min(max(due - self._now(), 0.0), LOOK_S)):
            look()
            if self._config.scrub_bytes_per_second and self._now() >= due:
                due = self._now() + self._config.scrub_interval / 1000
                a_pass()

    def look_at(self, place: int) -> None:
        """Look for damage in the segment with this physical offset, up to there; for any thread."""
        segment = self._log.segment_at(place)
        if segment is not None:
            for step in self.examiner.steps(segment.base_offset, self.examiner.end):
                if step.damage is not None:
                    self._note(step.damage)
                if step.end > place:
                    return

    def _note(self, damage: Damage) -> bool:
        """Whether it is known now, or was repaired since it was read."""
        if self.examiner.whole_records(damage.begin, damage.end, 1):
            return True
        self._unchecked_end = max(self._unchecked_end, damage.end)
        self._log.check_below(self._unchecked_end)
        self.damages.add(damage)
        return self.damages.at(damage.begin) is not None

    def _look_where_told(self) -> None:
        size = self._config.mapped_file_size_commit_log
        last_of_segment = {place // size: place for place in sorted(self._found_elsewhere.take())}
        for place in last_of_segment.values():
            self.look_at(place)

    def look_first(self) -> None:
        """Note the damage that recovery has passed; for any thread. Raises OSError."""
        with self._looking:
            for place in list(self._passed):
                if self._stopping.is_set():
                    return
                if place < self.examiner.end and self._look_from(place):
                    self._passed.remove(place)

    def _look_from(self, place: int) -> bool:
        """Whether the record at `place` is whole, or its damage noted."""
        for step in self.examiner.steps(place, self.examiner.end):
            if step.damage is not None:
                return self._note(step.damage)
            if step.end > place:
                return True
        return False

    def _pass(self) -> None:
        self.damages.forget_before(self._log.min_offset)
        for step in self.examiner.steps(self._log.min_offset, self.examiner.end):
            if step.damage is not None:
                self._note(step.damage)
            self.read += step.read
            rate = self._config.scrub_bytes_per_second
            if not rate or self._stopping.wait(step.read / rate):
                return
        self.passes += 1
        if not self.damages.open:
            self._unchecked_end = 0
            self._log.check_below(0)
