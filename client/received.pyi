from collections.abc import Iterable
from typing import final

from congreve.client.processqueue import ProcessQueue
from congreve.records.message import Host
from congreve.remoting.bodies import MessageQueue

__all__ = ["PulledRecords", "ReceivedMessage"]

@final
class PulledRecords:
    """The records of a pull's body, CRCs checked, and which of them are done with."""

    def __init__(
        self, body: bytes, *, tags: Iterable[str] | None = None, namespace: str | None = None
    ) -> None:
        """With `tags`, others than messages with one of these are left out: brokers compare hashes.
        Messages show topics without the `namespace`.

        RecordError where a record is damaged.
        """
    owner: ProcessQueue | None
    """Counts what is undone."""
    def __len__(self) -> int: ...
    @property
    def body(self) -> bytes:
        """As it was pulled, records that were left out included."""
    @property
    def undone(self) -> int:
        """How many are not done with."""
    @property
    def first_undone(self) -> int | None:
        """Queue offset of the first that is not done with; None: all are."""
    def messages(self, queue: MessageQueue) -> list[ReceivedMessage]:
        """Views on the records; they keep the whole body alive."""
    def done(self, message: ReceivedMessage) -> bool:
        """Note that a message of this pull is done with; False where it was before."""
    def is_done(self, message: ReceivedMessage) -> bool:
        """Whether a message of this pull is done with."""
    def done_all(self, messages: list[ReceivedMessage]) -> int:
        """The same for many; how many of them were not done before."""
    def done_rest(self) -> int:
        """The same for all; how many were not done before."""
    def offset_of(self, index: int) -> int:
        """Queue offset of a record; negative indices count from the end. IndexError."""

@final
class ReceivedMessage:
    """A message from a broker (RocketMQ: MessageExt). Times are milliseconds since 1970.

    `queue` is where it was found: for a retried message that is a queue of its group's retry topic,
    while `topic` is the one that it was sent to. A message that was pulled is a view on the pull's
    bytes: topic, body, properties and hosts are read when they are first asked for.
    """

    def __init__(
        self,
        *,
        topic: str,
        body: bytes,
        properties: dict[str, str],
        queue: MessageQueue,
        queue_offset: int = 0,
        physical_offset: int = 0,
        born_timestamp: int = 0,
        born_host: Host = ...,
        store_timestamp: int = 0,
        store_host: Host = ...,
        reconsume_times: int = 0,
        flag: int = 0,
        sys_flag: int = 0,
    ) -> None: ...
    @property
    def topic(self) -> str: ...
    @property
    def body(self) -> bytes:
        """Decompressed. ClientError where that cannot be done."""
    @property
    def body_size(self) -> int:
        """Bytes of the body as it is stored."""
    @property
    def properties(self) -> dict[str, str]: ...
    @property
    def queue(self) -> MessageQueue: ...
    @property
    def source(self) -> PulledRecords | None:
        """The pull that it came with."""
    @property
    def queue_id(self) -> int: ...
    @property
    def queue_offset(self) -> int: ...
    @property
    def physical_offset(self) -> int: ...
    @property
    def born_timestamp(self) -> int: ...
    @property
    def born_host(self) -> Host: ...
    @property
    def store_timestamp(self) -> int: ...
    @property
    def store_host(self) -> Host: ...
    @property
    def reconsume_times(self) -> int: ...
    @property
    def flag(self) -> int: ...
    @property
    def sys_flag(self) -> int:
        """RocketMQ's MessageSysFlag, less the bit that says that a body is compressed."""
    @property
    def tags(self) -> str | None: ...
    @property
    def keys(self) -> str | None:
        """Keys, with spaces between."""
    @property
    def message_id(self) -> str:
        """The id that its producer gave it, else the one that its place gives it."""
    @property
    def offset_message_id(self) -> str: ...
