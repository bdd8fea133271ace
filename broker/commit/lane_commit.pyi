from typing import Final, Self, final

from congreve.broker.figures.put_times import PutTimes
from congreve.engine.replication.confirm_offset import ConfirmOffset

HOLD_KIND: Final[int]
NO_SLAVE: Final[int]
SLAVE_LATE: Final[int]

@final
class LaneCommit:
    def __new__(
        cls, confirm: ConfirmOffset, times: PutTimes, *, timeout_s: float, failed_kind: int
    ) -> Self: ...
    def __len__(self) -> int: ...
