"""Queues by topic and id, for passes over many records that hold no GIL."""

from typing import final

from congreve.engine.consumequeue import ConsumeQueue

def is_topic(name: bytes) -> bool:
    """Whether a topic may be called so (RocketMQ: TopicValidator)."""

@final
class QueueMap:
    """(topic, queue id) -> queue; its use is for compiled code (`queuemap.pxd`)."""

    @property
    def kept(self) -> list[tuple[bytes, ConsumeQueue | None]]:
        """All that were put in, in that order."""
