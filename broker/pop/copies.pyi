from typing import final

from numpy import int64
from numpy.typing import NDArray

from congreve.engine.log.commit_log import CommitLog
from congreve.engine.pop.in_flight import InFlight, PopWindow
from congreve.engine.queue.consume_queue import ConsumeQueue

MOVED_MS: int

@final
class RetryCopies:
    def __new__(cls, log: CommitLog, in_flight: InFlight) -> RetryCopies: ...
    @property
    def end(self) -> int: ...
    def copy(
        self,
        window: PopWindow,
        rows: NDArray[int64],
        queue: ConsumeQueue | None,
        target: ConsumeQueue,
        *,
        host: bytes,
        attempts: int,
        until_ns: int,
    ) -> int: ...
