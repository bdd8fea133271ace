from typing import Self, final

from congreve.broker.metrics.put_times import PutTimes
from congreve.engine.log.commit_log import CommitLog

@final
class LaneCommit:
    def __new__(
        cls, log: CommitLog, times: PutTimes, *, timeout_s: float, failed_kind: int
    ) -> Self: ...
    def __len__(self) -> int: ...
