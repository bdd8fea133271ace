from typing import final

from congreve.engine.queue.consume_queue import ConsumeQueue

def is_topic(name: bytes) -> bool: ...
def is_delayed(topic: bytes) -> bool: ...

@final
class QueueMap:
    @property
    def queues(self) -> list[tuple[bytes, ConsumeQueue | None]]: ...
