"""Bits of a message's sysFlag (RocketMQ: MessageSysFlag)."""

from enum import IntFlag


class SysFlag(IntFlag):
    """Flags of a message: its body's compression, tags, hosts and transaction type."""

    COMPRESSED = 0x1
    MULTI_TAGS = 0x2
    TRANSACTION_PREPARED = 0x4
    TRANSACTION_COMMIT = 0x8
    TRANSACTION_ROLLBACK = 0xC
    BORN_HOST_V6 = 0x10
    STORE_HOST_V6 = 0x20


# The two bits that hold the transaction type; zero in them: no transaction.
TRANSACTION_MASK = 0xC
