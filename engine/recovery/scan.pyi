from collections.abc import Callable, Sequence
from typing import Final, Protocol, final, type_check_only

from typing_extensions import Buffer

from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.records.message.parked import ParkingRule

LIMIT: Final[int]
BLANK: Final[int]
END: Final[int]
BAD: Final[int]

@type_check_only
class Queues(Protocol):
    def get(self, topic: str, queue_id: int, /) -> ConsumeQueue | None: ...

@final
class LogScanner:
    def __init__(
        self,
        queues: Queues | None = None,
        *,
        verify_crc: bool = True,
        compare: bool = False,
        collect: bool = False,
        grows: bool = False,
        lags: bool = False,
        parking: Sequence[ParkingRule] = (),
        arrived: set[ConsumeQueue] | None = None,
        report: Callable[[str], None] = ...,
    ) -> None: ...
    def scan(
        self, segment: Buffer, base_offset: int, start: int, end: int | None = None
    ) -> int: ...
    def forget_queues(self) -> int: ...
    def pass_body(self, segment: Buffer, base_offset: int, start: int) -> bool: ...
    def claimed_size(self, data: Buffer, most: int) -> int: ...
    def agrees(
        self, segment: Buffer, base_offset: int, queue: ConsumeQueue, offset: int
    ) -> bool: ...
    def resync(self, segment: Buffer, base_offset: int, start: int) -> int | None: ...
    @property
    def position(self) -> int: ...
    @property
    def records(self) -> int: ...
    @property
    def last_record(self) -> int: ...
    @property
    def last_store_timestamp(self) -> int: ...
    @property
    def dispatched(self) -> int: ...
    @property
    def found(self) -> list[tuple[int, int, int, int]]: ...
    @property
    def missing(self) -> list[tuple[str, int]]: ...
