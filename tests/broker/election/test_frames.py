"""AutoSwitch frames: both directions, split at any byte, and bytes that are not frames."""

from __future__ import annotations

import struct
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from congreve.broker.election.frames import (
    DATA_MAX,
    FrameError,
    MasterHandshake,
    Report,
    SlaveFrame,
    SlaveHandshake,
    StoreName,
    Transfer,
    from_master,
    from_slave,
)
from congreve.engine.state.epochs import Epoch, Epochs

offsets = st.integers(0, 2**62)
numbers = st.integers(0, 2**31 - 1)
slave_frames = st.one_of(
    st.builds(SlaveHandshake, st.integers(0, 2**63 - 1), st.booleans(), st.booleans()),
    st.builds(Report, offsets),
    st.builds(StoreName, st.uuids().map(lambda made: made.hex)),
)


@st.composite
def epoch_lists(draw: st.DrawFn) -> Epochs:
    steps = draw(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 2**40)), max_size=8))
    pairs = accumulate(steps, lambda one, step: (one[0] + step[0], one[1] + step[1]))
    return Epochs(tuple(Epoch(*pair) for pair in pairs))


@st.composite
def transfers(draw: st.DrawFn) -> Transfer:
    offset = draw(offsets)
    epoch = Epoch(draw(numbers), draw(st.integers(0, offset)))
    return Transfer(draw(st.integers(0, DATA_MAX)), offset, epoch, draw(offsets))


master_frames = st.one_of(st.builds(MasterHandshake, offsets, numbers, epoch_lists()), transfers())


@given(slave_frames, st.binary(max_size=40))
def test_a_frame_of_a_slave_is_read_as_written(frame: SlaveFrame, rest: bytes) -> None:
    data = frame.encode()
    assert from_slave(data + rest) == (frame, len(data))
    assert all(from_slave(data[:cut]) is None for cut in range(len(data)))


@given(master_frames, st.binary(max_size=40))
def test_a_frame_of_a_master_is_read_as_written(
    frame: MasterHandshake | Transfer, rest: bytes
) -> None:
    data = frame.encode()
    assert from_master(data + rest) == (frame, len(data))
    assert all(from_master(data[:cut]) is None for cut in range(len(data)))


@given(st.binary(max_size=80))
def test_arbitrary_bytes_are_refused_or_incomplete(data: bytes) -> None:
    for read in (from_slave, from_master):
        try:
            found = read(data)
        except FrameError:
            continue
        assert found is None or found[0].encode() == data[: found[1]] or read is from_slave


def test_the_bytes_of_a_frame_equal_those_of_rocketmq() -> None:
    """The headers as AutoSwitchHAClient and AutoSwitchHAConnection of 5.3 write them."""
    assert SlaveHandshake(5, True, False).encode() == struct.pack(">ihhq", 1, 1, 0, 5)
    assert Report(9).encode() == struct.pack(">iq", 2, 9)
    handshake = MasterHandshake(77, 3, Epochs((Epoch(1, 0), Epoch(3, 50))))
    assert handshake.encode() == struct.pack(">iiqi iq iq", 1, 24, 77, 3, 1, 0, 3, 50)
    transfer = Transfer(10, 60, Epoch(3, 50), 55)
    assert transfer.encode() == struct.pack(">iiqiqq", 2, 10, 60, 3, 50, 55)


@pytest.mark.parametrize(
    ("size", "offset", "start"),
    [
        (5, 10, 15),  # the last part of an epoch, as 5.1 to 5.3 send it
        (0, -1, 0),  # a heartbeat about an empty log
    ],
)
def test_peculiar_transfers_of_rocketmq_are_read(size: int, offset: int, start: int) -> None:
    data = struct.pack(">iiqiqq", 2, size, offset, 3, start, 0)
    assert from_master(data) == (Transfer(size, offset, Epoch(3, start), 0), len(data))


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">iiqi", 1, 13, 0, 1),
        struct.pack(">iiqi", 1, -12, 0, 1),
        struct.pack(">iiqi", 1, 1 << 30, 0, 1),
        struct.pack(">iiqi iq iq", 1, 24, 77, 3, 3, 0, 1, 50),
        struct.pack(">iiqiqq", 2, 1 << 30, 0, 1, 0, 0),
        struct.pack(">iiqiqq", 2, -1, 0, 1, 0, 0),
        struct.pack(">iiqiqq", 2, 0, 10, 1, 11, 0),
        struct.pack(">iiqiqq", 2, 5, 10, 1, 16, 0),
        struct.pack(">iiqiqq", 2, 5, -1, 1, 0, 0),
        struct.pack(">iiqiqq", 2, 0, -2, 1, 0, 0),
        struct.pack(">iiqiqq", 2, 5, 10, 1, -1, 0),
        struct.pack(">i", 4),
    ],
)
def test_an_invalid_header_of_a_master_is_refused(data: bytes) -> None:
    with pytest.raises(FrameError):
        from_master(data)


def test_a_negative_report_is_refused() -> None:
    with pytest.raises(FrameError):
        from_slave(struct.pack(">iq", 2, -1))
