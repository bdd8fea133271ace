from typing import final

@final
class MappingCache:
    """At most `limit` read mappings of queue files, shared by all queues of a store."""

    def __init__(self, limit: int = 1024) -> None: ...
    @property
    def limit(self) -> int: ...
    def __len__(self) -> int: ...

@final
class QueueFiles:
    """The files of one queue (RocketMQ: MappedFileQueue); used by ConsumeQueue alone."""

    def __init__(self, folder: str, size: int, cache: MappingCache) -> None: ...
    @property
    def folder(self) -> str: ...
    @property
    def size(self) -> int:
        """Bytes of each file."""
