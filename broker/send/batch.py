"""The rules of a batch (RocketMQ: MessageBatch.generateFromList, CommitLog.putMessages).

In the reference mostly the client checks these rules: its broker stores an invalid member and
delivers it at once, regardless of its properties.
"""

from congreve.base.numbers import java_integer
from congreve.records.batches.batch_body import is_ordinary, member_properties
from congreve.records.errors import RecordError
from congreve.records.message import properties
from congreve.records.message.half_messages import says_transaction
from congreve.records.message.message import Record
from congreve.records.message.property_codec import decode_properties

_TIMES = (
    properties.TIMER_DELIVER_MS,
    properties.TIMER_DELAY_MS,
    properties.TIMER_DELAY_SEC,
)


def batch_fault(record: Record, body: bytes) -> str | None:
    """Why a batch cannot be stored, None when it can; its members share the fields of `record`."""
    if fault := _fault(record.properties):
        return f"a batch with {fault}"
    if is_ordinary(body):
        return None
    try:
        members = [decode_properties(text) for text in member_properties(body)]
    except RecordError as error:
        return f"a batch with a member whose properties cannot be read: {error}"
    for number, stored in enumerate(members):
        if fault := _fault(stored):
            return f"a batch whose member {number} has {fault}"
        if _waits(stored) != _waits(members[0]):
            return f"a batch whose member {number} differs from the first one in {properties.WAIT}"
    return None


def _waits(stored: dict[str, str]) -> bool:
    return stored.get(properties.WAIT, "true").lower() == "true"


def _fault(stored: dict[str, str]) -> str | None:
    level = java_integer(stored.get(properties.DELAY, ""))
    if level is not None and level > 0:
        return f"a delay ({properties.DELAY}={level})"
    for name in _TIMES:
        if name in stored:
            return f"a delivery time ({name}={stored[name]})"
    if says_transaction(stored):
        return f"a transaction ({properties.TRANSACTION_PREPARED}=true)"
    return None
