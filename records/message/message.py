"""A message as Python sees it."""

import msgspec

Host = tuple[str, int]

UNKNOWN_HOST: Host = ("0.0.0.0", 0)
RECONSUME_TIMES_MAX = (1 << 31) - 1


class Record(msgspec.Struct, kw_only=True):
    """One message with all fields of its record (RocketMQ: MessageExt).

    Timestamps are milliseconds since 1970; offsets are 0 until the store assigns them.
    `body` is the stored one; `sys_flag` says whether it is compressed.
    """

    topic: str
    body: bytes
    properties: dict[str, str] = {}
    queue_id: int = 0
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: Host = UNKNOWN_HOST
    store_host: Host = UNKNOWN_HOST
    reconsume_times: int = 0
    prepared_offset: int = 0
    store_timestamp: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    body_crc: int = 0
    size: int = 0


def one_more(reconsume_times: int) -> int:
    """How often a message was tried after one more time: a producer may have sent the largest
    number that a record has."""
    return min(reconsume_times + 1, RECONSUME_TIMES_MAX)
