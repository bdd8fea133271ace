"""Due messages, many at a time: from where they were parked to where they belong."""

from typing import Self, final

from typing_extensions import Buffer

from congreve.engine.commitlog import CommitLog
from congreve.engine.consumequeue import ConsumeQueue
from congreve.engine.queuetable import QueueTable

@final
class Redelivery:
    """Appends parked records to their real queues (RocketMQ: messageTimeup and putMessage).

    Called by the thread that appends; a run holds the GIL only to open segments and queues. What
    cannot be read, restored or stored any more is skipped.
    """

    def __new__(
        cls, log: CommitLog, queues: QueueTable, *, roll_ms: int = 0, run_ns: int = 10_000_000
    ) -> Self:
        """`roll_ms`: a timed message that is due later than this is written anew by then.

        A run ends about `run_ns` ns after it began, whatever is left.
        """
    @property
    def delivered(self) -> int:
        """Records appended by the last run."""
    @property
    def skipped(self) -> int:
        """Entries of the last run whose message is gone or has no target."""
    @property
    def end(self) -> int:
        """Physical offset behind the last run's last record, 0 where it appended none."""
    @property
    def next_due(self) -> int:
        """When the entry is due that ended the last run, ms since 1970; 0: none did."""
    @property
    def failure(self) -> str | None:
        """Why the disk ended the last run before its time, None where it did not."""
    def deliver_level(
        self, queue: ConsumeQueue, offset: int, limit: int, *, now_ms: int, delay_ms: int
    ) -> int:
        """Deliver due entries of a level's queue in order from `offset`, at most `limit`.

        Returns the offset of the first one that was not dealt with. An entry that is due later
        than `delay_ms` from now is due now, as in the reference: the level table has changed.
        """
    def deliver(self, offsets: Buffer, *, now_ms: int) -> int:
        """Deliver the timed records at these physical offsets (native int64), in this order.

        Returns how many were dealt with. One that is due only after `now_ms` (TIMER_OUT_MS) is
        appended to the timer queue again.
        """
    def arrived(self) -> list[ConsumeQueue]:
        """Queues met by the last run that somebody waits for."""
