"""Sizes of the store's files, without numpy: format.py has their layouts."""

ENTRY_SIZE = 20
"""Bytes of a consume-queue entry (RocketMQ: ConsumeQueue.CQ_STORE_UNIT_SIZE)."""

FILLER_SIZE = 0x7FFFFFFF
"""The size that marks an entry in front of a queue's first message (RocketMQ: fillPreBlank)."""

INDEX_HEADER_SIZE = 40
INDEX_SLOT_SIZE = 4
INDEX_ENTRY_SIZE = 20


def index_file_size(slots: int, entries: int) -> int:
    """Bytes of an index file with this many hash slots and entries."""
    return INDEX_HEADER_SIZE + slots * INDEX_SLOT_SIZE + entries * INDEX_ENTRY_SIZE
