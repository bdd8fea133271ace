from typing import final

from congreve.engine.consumequeue import ConsumeQueue

@final
class TopicTable:
    """Topics that take ordinary sends, findable without the GIL."""

    def __len__(self) -> int: ...
    def __contains__(self, topic: str, /) -> bool: ...
    def put(self, topic: str, read_queues: int, write_queues: int) -> None:
        """Add the topic, or replace what is known of it (its queues are asked for anew)."""
    def remove(self, topic: str) -> None:
        """Forget the topic; no error when it is not there."""
    def set_queue(self, topic: str, queue: ConsumeQueue) -> None:
        """Fill in one queue; KeyError when the topic or its queue id is not in the table."""
