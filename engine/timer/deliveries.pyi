from array import array
from collections.abc import Callable, Set
from typing import Self, final

from numpy import int64
from numpy.typing import NDArray

from congreve.engine.log.commit_log import CommitLog
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.queue.queue_table import QueueTable

@final
class DeliveryScan:
    def __new__(cls, log: CommitLog, queues: QueueTable) -> Self: ...
    def levels(
        self, start: int, offsets: dict[int, int], recalled: Set[tuple[int, int]] = ...
    ) -> dict[int, int]: ...
    def due_times(self, offsets: NDArray[int64]) -> array[int]: ...
    def timed(self, start: int, queue: ConsumeQueue) -> array[int]: ...
    def first_damaged(
        self,
        queue: ConsumeQueue,
        start: int,
        stop: int,
        is_valid: Callable[[ConsumeQueue, int], bool],
    ) -> int: ...
