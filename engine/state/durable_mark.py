"""The durable mark: up to where the log was on disk a moment ago.

Below it a record that cannot be read was damaged, above it one may be torn.
"""

import logging
import os
import time
from collections import deque
from collections.abc import Callable

import msgspec

from congreve.engine.errors import StoreError
from congreve.engine.health import Health
from congreve.engine.log.commit_log import CommitLog
from congreve.engine.log.named_record import NamedRecord
from congreve.engine.rounds import Rounds, StoreThread
from congreve.engine.state.sealed import seal, unseal
from congreve.engine.state.state_file import DISK, FileSystem
from congreve.io_backends.backend import Backend

#: Two rounds after a record became durable, a mark names it or a later one.
INTERVAL_S = 0.4
#: About the most that the log grows between two rounds.
STEP_BYTES = 32 << 20
MIN_INTERVAL_S = 0.02

#: The name of this part of the store in Health.
PART = "durable mark"

_FILE_SIZE = 512  # one sector, which a power cut does not tear
_SAMPLES_MAX = 256

logger = logging.getLogger(__name__)


class DurableMarkFile:
    """`ROOT/congreve/durable.json`, sealed: the last record of the log that is known to be on disk.

    It is written in place, in one sector, because that costs one sync. (RocketMQ: the times of
    StoreCheckpoint.)
    """

    def __init__(self, own_dir: str, files: FileSystem = DISK) -> None:
        self._path = os.path.join(own_dir, "durable.json")
        self._files = files

    def load(self) -> NamedRecord | None:
        """The saved mark; None without a valid one. Raises StoreError."""
        try:
            text = self._files.read_all(self._path).decode()
            return msgspec.json.decode(unseal(text), type=NamedRecord) if text.strip() else None
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"cannot read {self._path}: {error.strerror}") from error
        except (ValueError, RecursionError, msgspec.MsgspecError) as error:
            logger.warning("%s is damaged (%s): continuing without it", self._path, error)
            return None

    def replace(self, mark: NamedRecord) -> None:
        """Save the mark; it is durable when this returns. Raises StoreError."""
        self._write(seal(msgspec.json.encode(mark)))

    def clear(self) -> None:
        """Let there be no mark; that is durable when this returns. Raises StoreError."""
        self._write("")

    def _write(self, text: str) -> None:
        data = text.encode().ljust(_FILE_SIZE - 1) + b"\n"
        try:
            is_new = not self._files.exists(self._path)
            with self._files.open(self._path, os.O_RDWR | os.O_CREAT) as file:
                self._files.write(file, data, 0)
                self._files.sync_data(file)
            if is_new:
                self._files.sync_folder(os.path.dirname(self._path))
        except OSError as error:
            raise StoreError(f"cannot write {self._path}: {error.strerror}") from error


class DurableMarks(StoreThread):
    """The thread that writes the durable mark while a store is open.

    It asks for no sync: a mark names what the flush policy has made durable. (RocketMQ has no
    counterpart.)
    """

    def __init__(
        self,
        file: DurableMarkFile,
        log: CommitLog,
        backend: Backend,
        health: Health,
        *,
        interval_s: float = INTERVAL_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__("mark")
        self.file = file
        """Where the mark is."""
        self._log = log
        self._backend = backend
        self._health = health
        self._interval_s = interval_s
        self._monotonic = monotonic
        self._samples: deque[NamedRecord] = deque(maxlen=_SAMPLES_MAX)
        self._seen = 0

    def resume(self, marked: int, last_record: int) -> None:
        """Continue after recovery with the log's last record, or -1.

        The saved mark ends at `marked`; 0 without one.
        """
        self._seen = marked
        self._note(None if last_record < 0 else self._log.named_record(last_record))

    def start(self) -> None:
        """Write a first mark if one is due, and start the thread.

        After stop() a last round() marks what became durable since.
        """
        self.round()
        super().start()

    def _run(self) -> None:
        end, since = self._log.max_offset, self._monotonic()
        pause = self._interval_s
        round_of_work = Rounds("the mark of what is durable", self.round)
        while not self._stopping.wait(pause):
            round_of_work()
            grown, took = self._log.max_offset - end, self._monotonic() - since
            end, since = end + grown, since + took
            pause = max(min(self._interval_s, STEP_BYTES * took / max(grown, 1)), MIN_INTERVAL_S)

    def round(self) -> None:
        """Write a mark if one is due; a failure is retried in the next round."""
        self._note(self._log.newest_record())
        durable = self._backend.durable_offset
        mark = None
        while self._samples and self._samples[0].end <= durable:
            mark = self._samples.popleft()
        if mark is None:
            return
        try:
            self.file.replace(mark)
        except StoreError as error:
            self._samples.appendleft(mark)
            self._health.note_error(PART, error)
        else:
            self._health.works(PART)

    def _note(self, newest: NamedRecord | None) -> None:
        if newest is not None and newest.end > self._seen:
            self._samples.append(newest)
            self._seen = newest.end
