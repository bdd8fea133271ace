"""The fields of a record's header by which a log is recognised."""

import msgspec


class NamedRecord(msgspec.Struct, frozen=True, rename="camel"):
    """A record's place in the log, its size in bytes, its body's CRC-32 and its store time in ms.

    (RocketMQ has no counterpart.)
    """

    record: int
    size: int
    crc: int
    store_timestamp: int

    @property
    def end(self) -> int:
        """The physical offset after the record."""
        return self.record + self.size

    def is_same(self, other: "NamedRecord | None") -> bool:
        """Whether `other`, the header at this place, is of the same record.

        Its store time is the same, and so is its size or its CRC: one byte may be damaged.
        """
        return (
            other is not None
            and (self.record, self.store_timestamp) == (other.record, other.store_timestamp)
            and (self.size == other.size or self.crc == other.crc)
        )
