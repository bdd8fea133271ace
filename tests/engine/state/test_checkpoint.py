"""Checkpoints, in the reference's format and in Congreve's."""

import json
from pathlib import Path

import pytest

from congreve.engine.state.checkpoint import (
    Checkpoint,
    QueueCheckpoint,
    QueueCheckpointFile,
    QueuePromise,
)
from congreve.records.message.parked import ParkingRule

GOLDEN = json.loads((Path(__file__).parents[2] / "golden/checkpoint.json").read_text())


@pytest.mark.parametrize("case", GOLDEN)
def test_a_checkpoint_has_the_bytes_and_rules_of_the_reference(
    tmp_path: Path, case: dict[str, object]
) -> None:
    path = tmp_path / "checkpoint"
    checkpoint = Checkpoint(str(path))
    checkpoint.physic_msg_timestamp = case["physic"]  # type: ignore[assignment]
    checkpoint.logics_msg_timestamp = case["logics"]  # type: ignore[assignment]
    checkpoint.index_msg_timestamp = case["index"]  # type: ignore[assignment]
    checkpoint.flush()
    data = path.read_bytes()
    assert (len(data), data[:24].hex(), data[24:].count(0)) == (4096, case["first24_hex"], 4072)
    again = Checkpoint(str(path))
    again.load()
    assert again.min_timestamp == case["min_timestamp"]


@pytest.mark.parametrize("content", [None, b"", b"short"])
def test_a_missing_or_short_checkpoint_is_empty(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "checkpoint"
    if content is not None:
        path.write_bytes(content)
    checkpoint = Checkpoint(str(path))
    checkpoint.load()
    assert checkpoint.min_timestamp == 0


def test_a_queue_checkpoint_is_read_as_written(tmp_path: Path) -> None:
    file = QueueCheckpointFile(str(tmp_path / "congreve"))
    assert file.load() is None
    written = QueueCheckpoint(
        log_begin=0,
        log_end=100,
        last_record=7,
        last_store_timestamp=9,
        queue_file_size=80,
        parking=[ParkingRule((1000, 5000), 7)],
        queues={"T": {0: QueuePromise(1, 5, 100, [7, 8]), 11: QueuePromise(0, 2, 50)}},
    )
    file.replace(written)
    assert QueueCheckpointFile(str(tmp_path / "congreve")).load() == written


@pytest.mark.parametrize("text", ['{"logEnd": "x"}', "[" * 100_000, '{"crc":1,"state":{}}'])
def test_a_damaged_queue_checkpoint_is_ignored(tmp_path: Path, text: str) -> None:
    (tmp_path / "queues.json").write_text(text)
    assert QueueCheckpointFile(str(tmp_path)).load() is None


def test_a_queue_checkpoint_with_a_flipped_bit_is_not_used(tmp_path: Path, quick: bool) -> None:
    promise = QueuePromise(0, 10, 100, [7])
    written = QueueCheckpoint(
        log_begin=0,
        log_end=100,
        last_record=7,
        last_store_timestamp=9,
        queue_file_size=80,
        queues={"T": {0: promise}},
    )
    QueueCheckpointFile(str(tmp_path)).replace(written)
    path = tmp_path / "queues.json"
    whole = path.read_bytes()
    for at in range(0, len(whole) * 8, 5 if quick else 1):
        damaged = bytearray(whole)
        damaged[at // 8] ^= 1 << at % 8
        path.write_bytes(damaged)
        assert QueueCheckpointFile(str(tmp_path)).load() in (None, written)
