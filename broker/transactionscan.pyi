from congreve.broker.transactionwindow import HalfWindow
from congreve.engine.commitlog import CommitLog
from congreve.engine.consumequeue import ConsumeQueue

def settle_by_op_records(
    log: CommitLog, queue: ConsumeQueue, begin: int, window: HalfWindow, half_end: int
) -> int:
    """Settle what the op queue's records from `begin` on name, below `half_end`; how many did.

    Records that are not there, or do not say what an op record says, are passed over.
    """
