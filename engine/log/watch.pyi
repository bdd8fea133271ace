from typing import Final

from congreve.engine.log.append_lock import AppendLock
from congreve.engine.queue.consume_queue import ConsumeQueue

LOOP_WATCHER: Final[int]

def watch(lock: AppendLock, queue: ConsumeQueue, watcher: int) -> int: ...
def take_watchers(queue: ConsumeQueue) -> int: ...
