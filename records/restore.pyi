"""Parked records (delayed, or halves of transactions) turned back into what was sent."""

from typing import Final

from typing_extensions import Buffer

from congreve.records.message import Record

DELAYED: Final[int]
"""Parked by a delay level."""
TIMED: Final[int]
"""Parked until a time of its own."""
COMMITTED: Final[int]
"""A half message whose transaction was committed."""

def restored(record: Buffer, kind: int) -> Record:
    """What the parked record is to be stored as (RocketMQ: messageTimeup, endMessageTransaction).

    Its real topic and queue, and its properties without REAL_TOPIC, REAL_QID and what else only
    parking needed, which the reference leaves in (defect D25): DELAY and TIMER_*; of half
    messages PGROUP, TRANSACTION_CHECK_TIMES and TRAN_PREPARED_QUEUE_OFFSET. A committed one has
    the type COMMIT and its half's physical offset as prepared offset. RecordError for bytes that
    are no record, and for one without a real topic and queue.
    """
