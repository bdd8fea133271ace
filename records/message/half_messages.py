"""The records of transactional messages in the log (RocketMQ: TransactionalMessageBridge).

A half message is in queue 0 of the half topic and has its real topic in properties. Each half
message that is settled (committed, rolled back, copied or given up) gets an op record, whose body
is its queue offset. A committed message is a separate record in the real topic (records.restore
builds it). No function here changes its argument.
"""

import msgspec

from congreve.records.message import properties
from congreve.records.message.fitting import OF_BROKERS, fitting
from congreve.records.message.flags import TRANSACTION_MASK
from congreve.records.message.message import Host, Record
from congreve.records.message.parked import parked
from congreve.records.message.topics import (
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    TRANS_QUEUE_ID,
)

SETTLED_TAG = "d"
OP_PROPERTIES = {properties.TAGS: SETTLED_TAG, properties.WAIT: "true"}
_OF_COPIES = frozenset(
    (properties.TRANSACTION_CHECK_TIMES, properties.TRANSACTION_PREPARED_QUEUE_OFFSET)
)


def says_transaction(stored: dict[str, str]) -> bool:
    """Whether a message's properties make it part of a transaction."""
    return stored.get(properties.TRANSACTION_PREPARED, "").lower() == "true"


def is_half(record: Record) -> bool:
    """Whether a sent message waits for its commit.

    Without a producer group no producer can end it: then it is an ordinary message.
    """
    return says_transaction(record.properties) and properties.PRODUCER_GROUP in record.properties


def without_transaction(record: Record) -> Record:
    """The message as an ordinary one."""
    kept = {k: v for k, v in record.properties.items() if k != properties.TRANSACTION_PREPARED}
    return msgspec.structs.replace(
        record, properties=kept, sys_flag=record.sys_flag & ~TRANSACTION_MASK
    )


def half_message(record: Record) -> Record:
    """The half message of `record`; its transaction type is cleared, because it has a queue entry.

    It drops a sender's own check times and first offset: otherwise a restart would treat the
    message as a copy of another half message, and settle it.
    """
    stored = {name: text for name, text in record.properties.items() if name not in _OF_COPIES}
    half = parked(record, TRANS_HALF_TOPIC, TRANS_QUEUE_ID, stored)
    return msgspec.structs.replace(half, sys_flag=record.sys_flag & ~TRANSACTION_MASK)


def in_real_topic(half: Record) -> Record:
    """A half message in the form that a check shows to its producer."""
    shown = msgspec.structs.replace(
        half,
        properties={**half.properties, properties.WAIT: "false"},  # as the reference puts it back
        topic=half.properties[properties.REAL_TOPIC],
        queue_id=int(half.properties[properties.REAL_QUEUE_ID]),
    )
    return fitted(shown)


def fitted(copy: Record) -> Record:
    """A copy of a half message without what its properties have no room for, if that is enough."""
    return fitting(copy, optional=(*OF_BROKERS, properties.TRANSACTION_CHECK_TIMES)) or copy


def has_target(half: Record) -> bool:
    """Whether a half message names its real topic and queue."""
    queue_id = properties.natural(half.properties.get(properties.REAL_QUEUE_ID, ""))
    return properties.REAL_TOPIC in half.properties and queue_id is not None


def op_record(half_offset: int, store_host: Host, now_ms: int) -> Record:
    """The op record that settles the half message at this offset of its queue."""
    return Record(
        topic=TRANS_OP_HALF_TOPIC,
        body=b"%d" % half_offset,
        properties=dict(OP_PROPERTIES),
        queue_id=TRANS_QUEUE_ID,
        born_timestamp=now_ms,
        born_host=store_host,
        store_host=store_host,
    )


def put_back(half: Record, check_times: int) -> Record:
    """A copy for the end of the half queue, with the offset of the first half message.

    It keeps the user's flag (D21).
    """
    first = half.properties.get(
        properties.TRANSACTION_PREPARED_QUEUE_OFFSET, str(half.queue_offset)
    )
    return msgspec.structs.replace(
        half,
        properties={
            **half.properties,
            properties.TRANSACTION_CHECK_TIMES: str(check_times),
            properties.TRANSACTION_PREPARED_QUEUE_OFFSET: first,
        },
    )


def checked(record: Record, check_times: int) -> Record:
    """The message with the number of checks as a property."""
    stored = {**record.properties, properties.TRANSACTION_CHECK_TIMES: str(check_times)}
    return msgspec.structs.replace(record, properties=stored)


def given_up(half: Record, check_times: int) -> Record:
    """The record of a half message that no producer ended, for operators."""
    return msgspec.structs.replace(
        checked(half, check_times), topic=TRANS_CHECK_MAX_TIME_TOPIC, queue_id=TRANS_QUEUE_ID
    )


def resumed(given_up_message: Record) -> Record:
    """A given-up message as a half message again; its checks count from 0."""
    stored = dict(given_up_message.properties)
    stored.pop(properties.TRANSACTION_PREPARED_QUEUE_OFFSET, None)
    stored[properties.TRANSACTION_CHECK_TIMES] = "0"
    return msgspec.structs.replace(
        given_up_message, topic=TRANS_HALF_TOPIC, queue_id=TRANS_QUEUE_ID, properties=stored
    )


def check_times(half: Record) -> int:
    """The number of checks in the record."""
    return properties.natural(half.properties.get(properties.TRANSACTION_CHECK_TIMES, "")) or 0


def is_copy(half: Record) -> bool:
    """Whether it is a copy at the half queue's end, of this broker or of the reference."""
    return not _OF_COPIES.isdisjoint(half.properties)


def is_commit_of(record: Record, half: Record) -> bool:
    """Whether `record`, which names this half message, is its commit.

    A message from a delay level has the type COMMIT too, and names the half message at 0.
    """
    return (record.body, record.born_timestamp, record.born_host) == (
        half.body,
        half.born_timestamp,
        half.born_host,
    ) and record.properties.get(properties.UNIQ_KEY) == half.properties.get(properties.UNIQ_KEY)


def identity(half: Record) -> str:
    """A name shared by a half message and all its copies, including the reference's."""
    key = half.properties.get(properties.UNIQ_KEY)
    if key is not None:
        return f"{half.properties.get(properties.PRODUCER_GROUP)} {key}"
    return half.properties.get(properties.TRANSACTION_PREPARED_QUEUE_OFFSET, str(half.queue_offset))
