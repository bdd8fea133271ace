from congreve.engine.log.commit_log import CommitLog
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.records.message.message import Record

def append(
    log: CommitLog, queue: ConsumeQueue, record: Record, count: int, chunk: int, pause_ns: int
) -> tuple[int, int, int]: ...
