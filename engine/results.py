"""Results of puts and queries, and the figures of a store."""

from enum import Enum, auto

import msgspec


class PutStatus(Enum):
    """The result of a put (RocketMQ: PutMessageStatus)."""

    PUT_OK = auto()
    FLUSH_DISK_TIMEOUT = auto()
    FLUSH_SLAVE_TIMEOUT = auto()
    SLAVE_NOT_AVAILABLE = auto()
    SERVICE_NOT_AVAILABLE = auto()
    CREATE_MAPEDFILE_FAILED = auto()
    MESSAGE_ILLEGAL = auto()
    PROPERTIES_SIZE_EXCEEDED = auto()
    UNKNOWN_ERROR = auto()


class PutResult(msgspec.Struct, frozen=True):
    """The place of a stored message, or a batch's first; offsets are -1 if it was refused.

    RocketMQ: PutMessageResult, AppendMessageResult.
    """

    status: PutStatus
    physical_offset: int = -1
    end: int = -1  # durable_offset at which it is safe
    queue_offset: int = -1
    store_timestamp: int = 0
    message_ids: str = ""  # offset ids, joined by ','
    why: str = ""  # the disk's error, if that is the reason

    @property
    def refusal(self) -> str:
        """The reason as text, for the remark of a response."""
        return f"the store answered {self.status.name}" + (f": {self.why}" if self.why else "")


class StoreStats(msgspec.Struct, frozen=True):
    """Figures of a running store; offsets are physical, times in ms.

    (RocketMQ: DefaultMessageStore.getRuntimeInfo.)
    """

    log_begin: int
    log_end: int
    durable: int
    queues: int
    topics: int
    commit_log_disk_use: float  # share of the partition, -1.0 unknown
    consume_queue_disk_use: float

    @property
    def unflushed(self) -> int:
        """Bytes at the log's end that are not on disk."""
        return max(self.log_end - self.durable, 0)


class QueryResult(msgspec.Struct, frozen=True):
    """Records found by key (RocketMQ: QueryMessageResult); times in ms, offsets physical."""

    buffers: list[memoryview] = []
    index_last_update_timestamp: int = 0
    index_last_update_phyoffset: int = 0
