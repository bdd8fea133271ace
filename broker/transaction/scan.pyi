from congreve.broker.transaction.window import HalfWindow
from congreve.engine.log.commit_log import CommitLog
from congreve.engine.queue.consume_queue import ConsumeQueue

def settle_by_op_records(
    log: CommitLog, queue: ConsumeQueue, begin: int, window: HalfWindow, half_end: int
) -> int: ...
