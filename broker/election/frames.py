"""What a master and a slave of RocketMQ 5's AutoSwitch replication send each other.

All numbers are big endian. Each frame begins with the sender's state: HANDSHAKE, then TRANSFER. The
slave sends a handshake (16 bytes) and then reports (12 bytes), the master its epochs (20 bytes and
12 for each epoch) and then transfers (36 bytes and a part of the log, which belongs to one epoch).
To a master that asks for it, a slave first sends the id of its store (20 bytes): RocketMQ has no
such frame.
"""

import struct
from typing import NamedTuple

from congreve.broker.errors import BrokerError
from congreve.engine.errors import StoreFormatError
from congreve.engine.state.epochs import Epoch, Epochs

HANDSHAKE, TRANSFER = 1, 2
"""RocketMQ: HAConnectionState."""
STORE = 3
"""The state in which a slave says which store it has."""
EPOCHS_MAX = 1_000
"""Epochs that a handshake may list: RocketMQ's buffer takes no more."""
DATA_MAX = 4 << 20
"""Bytes of the log that a transfer may have: RocketMQ's slave has a buffer of this size."""

_STATE = struct.Struct(">i")
_SLAVE_HANDSHAKE = struct.Struct(">ihhq")
_STORE = struct.Struct(">i16s")
_REPORT = struct.Struct(">iq")
_MASTER_HANDSHAKE = struct.Struct(">iiqi")
_EPOCH = struct.Struct(">iq")
_TRANSFER = struct.Struct(">iiqiqq")
TRANSFER_HEADER = _TRANSFER.size


class FrameError(BrokerError):
    """The peer sent bytes that are not a frame of AutoSwitch replication."""


class StoreName(NamedTuple):
    """What a slave sends before its handshake: its store's id, 32 hexadecimal digits."""

    store: str

    def encode(self) -> bytes:
        """The frame."""
        return _STORE.pack(STORE, bytes.fromhex(self.store))


class SlaveHandshake(NamedTuple):
    """The first frame of RocketMQ's slave (RocketMQ: AutoSwitchHAClient's handshake header)."""

    member: int
    from_last_file: bool = False
    learner: bool = False

    def encode(self) -> bytes:
        """The frame."""
        flags = int(self.from_last_file), int(self.learner)
        return _SLAVE_HANDSHAKE.pack(HANDSHAKE, *flags, self.member)


class Report(NamedTuple):
    """How far a slave has the log (RocketMQ: AutoSwitchHAClient's transfer header)."""

    offset: int

    def encode(self) -> bytes:
        """The frame."""
        return _REPORT.pack(TRANSFER, self.offset)


class MasterHandshake(NamedTuple):
    """The master's answer to a handshake (RocketMQ: AutoSwitchHAConnection's handshake header)."""

    log_end: int
    epoch: int
    epochs: Epochs

    def encode(self) -> bytes:
        """The frame; of more than EPOCHS_MAX epochs it has the newest."""
        entries = self.epochs.entries[-EPOCHS_MAX:]
        size = len(entries) * _EPOCH.size
        head = _MASTER_HANDSHAKE.pack(HANDSHAKE, size, self.log_end, self.epoch)
        return head + b"".join(_EPOCH.pack(*entry) for entry in entries)


class Transfer(NamedTuple):
    """The header of a part of the log; without one, a heartbeat.

    `size` bytes of the log follow, which begin at `offset` and belong to `epoch`. `confirmed` is
    the offset up to which messages are acknowledged. (RocketMQ: AutoSwitchHAConnection's transfer
    header.)
    """

    size: int
    offset: int
    epoch: Epoch
    confirmed: int

    def encode(self) -> bytes:
        """The header."""
        return _TRANSFER.pack(TRANSFER, self.size, self.offset, *self.epoch, self.confirmed)


SlaveFrame = StoreName | SlaveHandshake | Report


def from_slave(data: bytes | bytearray | memoryview) -> tuple[SlaveFrame, int] | None:
    """The first frame of a slave's bytes, and its length; None while it is not complete.

    Raises FrameError.
    """
    state = _state_of(data, (STORE, HANDSHAKE, TRANSFER))
    if state == STORE and len(data) >= _STORE.size:
        _, store = _STORE.unpack_from(data)
        return StoreName(store.hex()), _STORE.size
    if state == HANDSHAKE and len(data) >= _SLAVE_HANDSHAKE.size:
        _, from_last, learner, member = _SLAVE_HANDSHAKE.unpack_from(data)
        return SlaveHandshake(member, from_last == 1, learner == 1), _SLAVE_HANDSHAKE.size
    if state == TRANSFER and len(data) >= _REPORT.size:
        _, offset = _REPORT.unpack_from(data)
        if offset < 0:
            raise FrameError(f"a slave reports the offset {offset}")
        return Report(offset), _REPORT.size
    return None


def from_master(
    data: bytes | bytearray | memoryview,
) -> tuple[MasterHandshake | Transfer, int] | None:
    """The first frame of a master's bytes, and its length without the log's bytes of a transfer.

    None while it is not complete. Raises FrameError.
    """
    state = _state_of(data, (HANDSHAKE, TRANSFER))
    if state == HANDSHAKE and len(data) >= _MASTER_HANDSHAKE.size:
        _, size, log_end, epoch = _MASTER_HANDSHAKE.unpack_from(data)
        if size % _EPOCH.size or not 0 <= size <= EPOCHS_MAX * _EPOCH.size or log_end < 0:
            raise FrameError(f"a handshake with {size} bytes of epochs, log end {log_end}")
        end = _MASTER_HANDSHAKE.size + size
        if len(data) < end:
            return None
        try:
            body = data[_MASTER_HANDSHAKE.size : end]
            epochs = Epochs(tuple(Epoch(*entry) for entry in _EPOCH.iter_unpack(body)))
        except StoreFormatError as error:
            raise FrameError(f"a handshake with wrong epochs: {error}") from error
        return MasterHandshake(log_end, epoch, epochs), end
    if state == TRANSFER and len(data) >= _TRANSFER.size:
        _, size, offset, epoch, start, confirmed = _TRANSFER.unpack_from(data)
        # RocketMQ sends the last part of an epoch with the next one's number and start, and -1 as
        # the offset of a heartbeat while its log is empty.
        is_in_epoch = offset >= 0 and 0 <= start <= offset + size
        if not 0 <= size <= DATA_MAX or not (is_in_epoch or (size == 0 and offset == -1)):
            raise FrameError(f"a transfer of {size} bytes at {offset}, epoch {epoch} from {start}")
        return Transfer(size, offset, Epoch(epoch, start), confirmed), _TRANSFER.size
    return None


def _state_of(data: bytes | bytearray | memoryview, known: tuple[int, ...]) -> int | None:
    if len(data) < _STATE.size:
        return None
    (state,) = _STATE.unpack_from(data)
    if state not in known:
        raise FrameError(f"state {state} is none of {known}")
    return int(state)
