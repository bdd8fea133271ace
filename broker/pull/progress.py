"""How far a pull has come, as the event loop and the lanes tell each other."""

import struct
from typing import NamedTuple, Self

MAY_WAIT, COMMITTED, METERED, POLLED = 1, 2, 4, 8
"""PullFlag in lanes/polling.pxd."""
FLAG_BITS = 5
"""Of a number with flags; the ms that a pull has waited are above them."""

_HEAD = struct.Struct("=qqqii")


class PullProgress(NamedTuple):
    """PullProgress in lanes/polling.pxd: a mailbox entry begins with it, and the frame follows."""

    offset: int = -1
    begun_ms: int = 0
    place: int = -1
    status: int = 0
    flags: int = MAY_WAIT

    def entry(self, frame: bytes) -> bytes:
        """The bytes of an entry."""
        return _HEAD.pack(*self) + frame

    @classmethod
    def of_entry(cls, data: bytes) -> tuple[Self, bytes]:
        """The progress and the frame of an entry."""
        return cls(*_HEAD.unpack_from(data)), data[_HEAD.size :]
