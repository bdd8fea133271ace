"""The result of an append."""

from typing import NamedTuple


class AppendResult(NamedTuple):
    """Where a record, or the records of a batch, went (RocketMQ: AppendMessageResult)."""

    physical_offset: int  # of the first record
    end: int  # the records are durable when the log is durable up to here
    queue_offset: int  # of the first record
    store_timestamp: int  # ms since 1970
    records: int
