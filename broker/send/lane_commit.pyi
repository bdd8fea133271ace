from typing import Self, final

from congreve.engine.log.commit_log import CommitLog

@final
class LaneCommit:
    def __new__(cls, log: CommitLog, *, timeout_s: float, failed_kind: int) -> Self: ...
    def __len__(self) -> int: ...
