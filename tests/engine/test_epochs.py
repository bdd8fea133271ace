"""Epochs: where two logs differ, and the file of RocketMQ 5."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from congreve.engine.errors import StoreFormatError
from congreve.engine.state.epochs import (
    Epoch,
    EpochFile,
    Epochs,
    decode_epochs,
    encode_epochs,
)


class Log(NamedTuple):
    """A list of the epochs that wrote each byte, and the epochs of the file."""

    numbers: list[int]
    epochs: Epochs

    def written(self, number: int, count: int) -> Log:
        start = len(self.numbers)
        return Log([*self.numbers, *[number] * count], self.epochs.begun(number, start))

    def copied(self, master: Log, end: int) -> Log:
        """After the handshake, and a copy of the master's log up to `end`."""
        common = common_length(self.numbers, master.numbers)
        epochs = self.epochs.cut(common)
        for entry in master.epochs.entries:
            if epochs.newest < entry.number and entry.start <= end:
                epochs = epochs.begun(*entry)
        return Log(master.numbers[:end], epochs)


@st.composite
def histories(draw: st.DrawFn) -> tuple[Log, Log]:
    """Two logs of one group: each epoch's master continues its own, the other may copy it."""
    first = Log([], Epochs()).written(1, 0)
    logs = [first, first]
    for number in range(2, draw(st.integers(2, 7))):
        master = draw(st.integers(0, 1))
        logs[master] = logs[master].written(number, draw(st.integers(0, 4)))
        follower = logs[1 - master]
        common = common_length(logs[master].numbers, follower.numbers)
        if draw(st.booleans()):
            end = draw(st.integers(common, len(logs[master].numbers)))
            logs[1 - master] = follower.copied(logs[master], end)
    return logs[0], logs[1]


def common_length(one: list[int], other: list[int]) -> int:
    pairs = zip(one, other, strict=False)
    return next(
        (at for at, (mine, its) in enumerate(pairs) if mine != its), min(len(one), len(other))
    )


@given(histories())
def test_the_common_end_is_the_length_of_the_common_prefix(logs: tuple[Log, Log]) -> None:
    one, other = logs
    found = one.epochs.common_end(len(one.numbers), other.epochs, len(other.numbers))
    assert found == common_length(one.numbers, other.numbers)
    assert found == other.epochs.common_end(len(other.numbers), one.epochs, len(one.numbers))


@given(histories())
def test_each_byte_has_its_epoch(logs: tuple[Log, Log]) -> None:
    numbers, epochs = logs[0]
    for offset, number in enumerate(numbers):
        entry = epochs.at(offset)
        assert entry is not None
        assert entry.number == number
        assert entry.start <= offset < epochs.end_of(entry, len(numbers))
    for end in range(len(numbers)):
        assert epochs.cut(end + 1).newest == numbers[end]
        kept = epochs.without_expired(end)
        assert kept.at(end) == epochs.at(end)
        assert kept.last == epochs.last


def test_the_first_epoch_stays_even_if_it_is_empty() -> None:
    """A master of epoch 1 that stored one message alone finds the start of the group's log."""
    alone = Epochs().begun(1, 0)
    master = Epochs().begun(1, 0).begun(2, 0).begun(3, 0)
    assert master.entries == (Epoch(1, 0), Epoch(3, 0))
    assert alone.common_end(1, master, 7) == 0
    assert master.cut(0) == alone


@given(histories())
def test_the_epoch_file_is_read_as_written(logs: tuple[Log, Log]) -> None:
    epochs = logs[0].epochs
    assert decode_epochs(encode_epochs(epochs.entries)) == epochs


def test_the_text_of_an_epoch_file_equals_that_of_rocketmq() -> None:
    """The example of CheckpointFile's own comment in RocketMQ 5.3."""
    text = "2\n773307083\n7-7000\n8-8000\n"
    epochs = Epochs((Epoch(7, 7000), Epoch(8, 8000)))
    assert encode_epochs(epochs.entries) == text
    assert decode_epochs(text) == epochs
    assert decode_epochs(text.replace("773307083", "0")) == epochs  # 0: no check


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1\n",
        "2\n0\n7-7000\n",
        "1\n5\n7-7000\n",
        "1\n0\n7\n",
        "1\n0\n-1-5\n",
        "2\n0\n7-7000\n7-8000\n",
        "3\n0\n6-10\n7-7000\n8-7000\n",
    ],
)
def test_a_damaged_text_is_refused(text: str) -> None:
    with pytest.raises((ValueError, StoreFormatError)):
        decode_epochs(text)


def test_an_empty_epoch_is_removed() -> None:
    epochs = Epochs().begun(1, 0).begun(2, 500).begun(3, 500)
    assert epochs.entries == (Epoch(1, 0), Epoch(3, 500))
    with pytest.raises(StoreFormatError):
        epochs.begun(3, 600)
    with pytest.raises(StoreFormatError):
        epochs.begun(4, 400)


def test_a_damaged_epoch_file_needs_its_backup(tmp_path: Path) -> None:
    path = tmp_path / "epochFileCheckpoint"
    assert EpochFile(str(path)).load() == Epochs()
    first, second = Epochs((Epoch(1, 0),)), Epochs((Epoch(1, 0), Epoch(2, 9)))
    EpochFile(str(path)).save(first)
    EpochFile(str(path)).save(second)
    assert EpochFile(str(path)).load() == second
    path.write_text("1\n1\n1-1\n")
    assert EpochFile(str(path)).load() == first
    path.write_text("x\n")
    path.with_name(path.name + ".bak").write_text("x\n")
    with pytest.raises(StoreFormatError, match="is damaged"):
        EpochFile(str(path)).load()
