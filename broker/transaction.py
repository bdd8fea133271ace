"""What transactional messages look like in the log (RocketMQ: TransactionalMessageBridge).

A half message lies in queue 0 of the half topic and names its real target in properties. Each
half message that needs no further look (committed, rolled back, copied or given up) gets an op
record, whose body is its queue offset. A committed message is a record of its own in the real
topic (records.restore makes it). Every function here leaves the record that it is given as it is.
"""

import msgspec

from congreve.broker.topics import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from congreve.records import properties
from congreve.records.flags import TRANSACTION_MASK
from congreve.records.message import Host, Record

#: Its offsets on the half and op topics say how far all transactions are ended.
TRANS_GROUP = "CID_RMQ_SYS_TRANS"
QUEUE_ID = 0  # of the half and op topics, and of the topic of those given up
SETTLED_TAG = "d"


def says_transaction(stored: dict[str, str]) -> bool:
    """Whether a message's properties call it part of a transaction."""
    return stored.get(properties.TRANSACTION_PREPARED, "").lower() == "true"


def is_half(record: Record) -> bool:
    """Whether a sent message is to wait for its commit.

    One without a producer group can be ended by nobody: it is a committed message that a consumer
    sent on with the properties it came with (defect D25), an ordinary one.
    """
    return says_transaction(record.properties) and properties.PRODUCER_GROUP in record.properties


def without_transaction(record: Record) -> Record:
    """The message as an ordinary one."""
    kept = {k: v for k, v in record.properties.items() if k != properties.TRANSACTION_PREPARED}
    return msgspec.structs.replace(
        record, properties=kept, sys_flag=record.sys_flag & ~TRANSACTION_MASK
    )


def half_message(record: Record) -> Record:
    """How `record` waits for its commit. Its transaction type is cleared: it has a queue entry."""
    return msgspec.structs.replace(
        record,
        topic=TRANS_HALF_TOPIC,
        queue_id=QUEUE_ID,
        sys_flag=record.sys_flag & ~TRANSACTION_MASK,
        properties={
            **record.properties,
            properties.REAL_TOPIC: record.topic,
            properties.REAL_QUEUE_ID: str(record.queue_id),
        },
    )


def in_real_topic(half: Record) -> Record:
    """A half message as its producer is shown it in a check."""
    return msgspec.structs.replace(
        half,
        topic=half.properties[properties.REAL_TOPIC],
        queue_id=int(half.properties[properties.REAL_QUEUE_ID]),
    )


def has_target(half: Record) -> bool:
    """Whether it names the topic and queue that it is for."""
    queue_id = half.properties.get(properties.REAL_QUEUE_ID, "")
    return properties.REAL_TOPIC in half.properties and queue_id.isdecimal()


def op_record(half_offset: int, store_host: Host, now_ms: int) -> Record:
    """Says that the half message at this offset of its queue is settled."""
    return Record(
        topic=TRANS_OP_HALF_TOPIC,
        body=b"%d" % half_offset,
        properties={properties.TAGS: SETTLED_TAG, properties.WAIT: "true"},
        queue_id=QUEUE_ID,
        born_timestamp=now_ms,
        born_host=store_host,
        store_host=store_host,
    )


def put_back(half: Record, check_times: int) -> Record:
    """A copy for the end of the half queue; it names the first half message (D21: and keeps
    the user's flag)."""
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


def given_up(half: Record, check_times: int) -> Record:
    """How a half message is kept for an operator's eyes when its producers never ended it."""
    return msgspec.structs.replace(
        half,
        topic=TRANS_CHECK_MAX_TIME_TOPIC,
        queue_id=QUEUE_ID,
        properties={**half.properties, properties.TRANSACTION_CHECK_TIMES: str(check_times)},
    )


def resumed(given_up_message: Record) -> Record:
    """A message that was given up as a half message again, with all its checks before it."""
    stored = dict(given_up_message.properties)
    stored.pop(properties.TRANSACTION_PREPARED_QUEUE_OFFSET, None)
    stored[properties.TRANSACTION_CHECK_TIMES] = "0"
    return msgspec.structs.replace(
        given_up_message, topic=TRANS_HALF_TOPIC, queue_id=QUEUE_ID, properties=stored
    )


def check_times(half: Record) -> int:
    """How often the producers were asked, as the record says."""
    text = half.properties.get(properties.TRANSACTION_CHECK_TIMES, "")
    return int(text) if text.isdecimal() else 0


def is_copy(half: Record) -> bool:
    """Whether it was put back to the half queue's end, by us or by the reference."""
    return (
        properties.TRANSACTION_CHECK_TIMES in half.properties
        or properties.TRANSACTION_PREPARED_QUEUE_OFFSET in half.properties
    )


def identity(half: Record) -> str:
    """The same for a half message and all its copies, those of the reference included."""
    key = half.properties.get(properties.UNIQ_KEY)
    if key is not None:
        return f"{half.properties.get(properties.PRODUCER_GROUP)} {key}"
    return half.properties.get(properties.TRANSACTION_PREPARED_QUEUE_OFFSET, str(half.queue_offset))
