from collections.abc import Callable
from typing import Self, final

from typing_extensions import Buffer

from congreve.engine.log.commit_log import CommitLog
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.queue.queue_table import QueueTable

PresentQueue = Callable[[str, int], int]

@final
class Redelivery:
    def __new__(
        cls,
        log: CommitLog,
        queues: QueueTable,
        *,
        roll_ms: int = 0,
        run_ns: int = 10_000_000,
        present_queue: PresentQueue | None = None,
        lacks_file: Callable[[str, int], bool] | None = None,
    ) -> Self: ...
    @property
    def delivered(self) -> int: ...
    @property
    def skipped(self) -> int: ...
    @property
    def undeliverable(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def next_due(self) -> int: ...
    @property
    def fileless(self) -> tuple[str, int] | None: ...
    @property
    def damaged(self) -> bool: ...
    @property
    def failure(self) -> str | None: ...
    def deliver_level(
        self,
        queue: ConsumeQueue,
        offset: int,
        limit: int,
        *,
        now_ms: int,
        delay_ms: int,
        passes: int = ...,
    ) -> int: ...
    def deliver(self, offsets: Buffer, *, now_ms: int) -> int: ...
    def arrived(self) -> list[ConsumeQueue]: ...
