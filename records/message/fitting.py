"""Messages whose properties leave too little room for what a broker adds to them."""

from collections.abc import Sequence

import msgspec

from congreve.records.layout import PROPERTIES_MAX
from congreve.records.message.message import Record
from congreve.records.message.properties import (
    CLUSTER,
    CONSUME_START_TIMESTAMP,
    MAX_OFFSET,
    MAX_RECONSUME_TIMES,
    MIN_OFFSET,
    MSG_REGION,
    ORIGIN_MESSAGE_ID,
    RECONSUME_TIME,
    TRACE_SWITCH,
    WAIT,
)
from congreve.records.message.property_codec import encode_properties

OF_BROKERS = (
    MIN_OFFSET,
    MAX_OFFSET,
    CONSUME_START_TIMESTAMP,
    MAX_RECONSUME_TIMES,
    RECONSUME_TIME,
    WAIT,
    TRACE_SWITCH,
    MSG_REGION,
    CLUSTER,
    ORIGIN_MESSAGE_ID,
)
"""What brokers and clients add, and what a copy can be without; the least useful first."""


def properties_size(record: Record) -> int:
    """Bytes of the record's properties. Raises RecordError as encode_properties()."""
    return len(encode_properties(record.properties))


def fitting(
    record: Record, *, room: int = 0, optional: Sequence[str] = OF_BROKERS
) -> Record | None:
    """`record` with properties that fit, and leave `room` bytes; None if that is not possible.

    It leaves out as few of the `optional` properties as needed, the first ones first.
    """
    excess = properties_size(record) + room - PROPERTIES_MAX
    if excess <= 0:
        return record
    kept = dict(record.properties)
    for name in optional:
        if name in kept:
            excess -= len(encode_properties({name: kept.pop(name)})) + (1 if kept else 0)
            if excess <= 0:
                return msgspec.structs.replace(record, properties=kept)
    return None
