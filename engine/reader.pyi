import enum
from collections.abc import Iterable
from typing import final

from congreve.engine.commitlog import CommitLog
from congreve.engine.config import StoreConfig
from congreve.engine.consumequeue import ConsumeQueue
from congreve.records.recordfilter import RecordFilter

class GetStatus(enum.IntEnum):
    """What a look into a queue found (RocketMQ: GetMessageStatus)."""

    FOUND = ...
    NO_MATCHED_MESSAGE = ...
    MESSAGE_WAS_REMOVING = ...
    OFFSET_FOUND_NULL = ...
    OFFSET_OVERFLOW_BADLY = ...
    OFFSET_OVERFLOW_ONE = ...
    OFFSET_TOO_SMALL = ...
    NO_MATCHED_LOGIC_QUEUE = ...
    NO_MESSAGE_IN_QUEUE = ...

@final
class TagFilter:
    """Tag hashes (signed 32 bits) of which an entry must carry one."""

    def __init__(self, codes: Iterable[int]) -> None: ...

@final
class Limits:
    """How much one answer may hold (MessageStoreConfig.maxTransfer*): bytes and messages, within
    `memory_window` bytes of the log's end and farther behind it. One message always fits."""

    def __init__(
        self,
        *,
        memory_bytes: int,
        memory_count: int,
        disk_bytes: int,
        disk_count: int,
        memory_window: int,
    ) -> None: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def memory_count(self) -> int: ...
    @property
    def disk_bytes(self) -> int: ...
    @property
    def disk_count(self) -> int: ...
    @property
    def memory_window(self) -> int: ...

@final
class Gather:
    """One look into a queue and what it found; for compiled callers, see reader.pxd."""

    def __init__(self, log: CommitLog, limits: Limits) -> None: ...
    @property
    def status(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def min_offset(self) -> int: ...
    @property
    def max_offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def suggest_slave(self) -> bool: ...

@final
class GetResult:
    """RocketMQ: GetMessageResult."""

    @property
    def status(self) -> GetStatus: ...
    @property
    def next_offset(self) -> int:
        """Where to go on (nextBeginOffset)."""
    @property
    def min_offset(self) -> int: ...
    @property
    def max_offset(self) -> int: ...
    @property
    def size(self) -> int:
        """Bytes of all `buffers`."""
    @property
    def count(self) -> int:
        """Messages in `buffers`."""
    @property
    def suggest_slave(self) -> bool:
        """The last entry looked at lies farther behind the log's end than memory reaches."""
    @property
    def buffers(self) -> list[bytes | memoryview]:
        """Whole records, one behind the other: the body of a pull's answer."""

@final
class Reader:
    """Reads queues of one log (RocketMQ: DefaultMessageStore.getMessage)."""

    def __init__(self, config: StoreConfig, log: CommitLog) -> None: ...
    @property
    def limits(self) -> Limits: ...
    def get(
        self,
        queue: ConsumeQueue,
        offset: int,
        max_count: int,
        tag_codes: Iterable[int] | None = None,
        records: RecordFilter | None = None,
    ) -> GetResult:
        """At most `max_count` messages from `offset` on that pass both filters; any thread."""
