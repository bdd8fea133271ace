"""What two brokers send each other on a connection for repairs, in big endian, in both directions.

A request: i32 FETCH, i64 begin and i64 end of the damage, then a record that both logs must have:
i64 physical offset, i32 size, i32 CRC of the body, i64 store time.
An answer: i32 FETCHED, i64 begin, i32 outcome, i64 end, i32 size, then `size` bytes: whole records
from `begin` to `end`, as many as the other end likes to send, at least one. If they are damaged
there, too, that damage goes on to `end`.
"""

import struct
from typing import NamedTuple

from congreve.broker.errors import BrokerError
from congreve.engine.log.named_record import NamedRecord
from congreve.engine.scrub.examiner import WHOLE_MAX

FETCH, FETCHED = 1, 2
WHOLE, DAMAGED, OTHER_LOG, NOT_THERE = 0, 1, 2, 3
"""Outcomes: the records follow; they are damaged; that record is another one; they are not there,
or not confirmed and on disk."""

KIND_SIZE = 4
"""Bytes at the beginning of a frame that say how long it is."""
_FETCH = struct.Struct(">iqqqiiq")
_FETCHED = struct.Struct(">iqiqi")


class RepairFrameError(BrokerError):
    """The other end of a connection for repairs sent bytes that are not a frame."""


class Fetch(NamedTuple):
    """A request for the whole records of [begin, end), of a log that has the record `beside`.

    (RocketMQ: none.)
    """

    begin: int
    end: int
    beside: NamedRecord

    def encode(self) -> bytes:
        """The frame."""
        known = self.beside
        return _FETCH.pack(
            FETCH,
            self.begin,
            self.end,
            *(known.record, known.size, known.crc, known.store_timestamp),
        )


class Fetched(NamedTuple):
    """The head of an answer; `size` bytes follow. (RocketMQ: none.)"""

    begin: int
    outcome: int
    end: int
    size: int

    def encode(self) -> bytes:
        """The head."""
        return _FETCHED.pack(FETCHED, *self)


def frame_size(data: bytes) -> int:
    """Bytes of the frame that begins with these four. Raises RepairFrameError."""
    kind = int.from_bytes(data[:KIND_SIZE])
    if kind not in (FETCH, FETCHED):
        raise RepairFrameError(f"a frame of kind {kind}")
    return _FETCH.size if kind == FETCH else _FETCHED.size


def frame_in(data: bytes) -> Fetch | Fetched:
    """The frame in these bytes. Raises RepairFrameError."""
    if len(data) != frame_size(data):
        raise RepairFrameError(f"a frame of {len(data)} bytes")
    if len(data) == _FETCH.size:
        _, begin, end, *known = _FETCH.unpack(data)
        if not 0 <= begin < end or known[0] < 0:
            raise RepairFrameError(f"a request for {begin} to {end}, beside {known[0]}")
        return Fetch(begin, end, NamedRecord(*known))
    _, begin, outcome, end, size = _FETCHED.unpack(data)
    if not 0 <= size <= WHOLE_MAX or outcome not in range(NOT_THERE + 1) or end < begin:
        raise RepairFrameError(f"an answer of {size} bytes with the outcome {outcome}, to {end}")
    return Fetched(begin, outcome, end, size)
