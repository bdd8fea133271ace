from collections.abc import Callable, Sequence
from typing import Final, Protocol, final, type_check_only

from typing_extensions import Buffer

from congreve.engine.consumequeue import ConsumeQueue

LIMIT: Final[int]
BLANK: Final[int]
END: Final[int]
BAD: Final[int]

@type_check_only
class Queues(Protocol):
    """What get() answers None for is passed over; QueueTable makes whatever it is asked for."""

    def get(self, topic: str, queue_id: int, /) -> ConsumeQueue | None: ...

@final
class LogScanner:
    """Walks the log record by record, without the GIL, and brings consume queues up to it.

    RocketMQ: CommitLog.checkMessageAndReturnSize with the build of DispatchRequests. Offsets are
    physical. The walk stops where the log can be no further trusted; what that means is the
    caller's to decide.
    """

    def __init__(
        self,
        queues: Queues | None = None,
        *,
        verify_crc: bool = True,
        compare: bool = False,
        delay_levels_ms: Sequence[int] = (),
        timer_roll_ms: int = 0,
        report: Callable[[str], None] = ...,
    ) -> None:
        """Without `queues` records are only checked; with `compare` their entries are compared.

        Otherwise missing entries are appended: a queue that begins later gets filler, a record
        that its queue has already is passed over. `report` hears of each trouble, as a sentence;
        by default it is logged as a warning.
        """

    def scan(self, segment: Buffer, base_offset: int, start: int, end: int | None = None) -> int:
        """Walk one segment from the record at `start`, at most to `end`; why it stopped.

        LIMIT: `end`, or the segment's last byte. BLANK: the rest of the segment is empty by
        design. END: zeros. BAD: no valid record (also one of an impossible topic or queue).
        `position` tells where. BackendError where a queue cannot grow.
        """

    def resync(self, segment: Buffer, base_offset: int, start: int) -> int | None:
        """Offset of the first whole valid record at or behind `start` in this segment."""

    @property
    def position(self) -> int:
        """Of the first record that was not taken."""
    @property
    def records(self) -> int:
        """Taken so far."""
    @property
    def last_record(self) -> int:
        """Offset of the last one taken, -1 before the first."""
    @property
    def last_store_timestamp(self) -> int:
        """Its store time in ms."""
    @property
    def dispatched(self) -> int:
        """Records that have an entry, or with `compare` should have one."""
    @property
    def missing(self) -> list[tuple[str, int]]:
        """With `compare`: (topic, queue id) that records name and that are not there."""
