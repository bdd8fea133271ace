"""Checkpoints, in the reference's form and in ours."""

import json
from pathlib import Path

import pytest

from congreve.engine.checkpoint import Checkpoint, QueueCheckpoint, QueueCheckpointFile

GOLDEN = json.loads((Path(__file__).parent / "checkpoint.json").read_text())


@pytest.mark.parametrize("case", GOLDEN)
def test_same_bytes_and_rules_as_the_reference(tmp_path: Path, case: dict[str, object]) -> None:
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
    assert again.min_timestamp_index == case["min_timestamp_index"]


@pytest.mark.parametrize("content", [None, b"", b"short"])
def test_a_missing_or_short_checkpoint_knows_nothing(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "checkpoint"
    if content is not None:
        path.write_bytes(content)
    checkpoint = Checkpoint(str(path))
    checkpoint.load()
    assert checkpoint.min_timestamp == 0


def test_queue_checkpoint_round_trip(tmp_path: Path) -> None:
    file = QueueCheckpointFile(str(tmp_path / "congreve"))
    assert file.load() is None
    written = QueueCheckpoint(
        log_begin=0,
        log_end=100,
        last_record=7,
        last_store_timestamp=9,
        queues={"T": {0: (1, 5), 11: (0, 2)}},
    )
    file.replace(written)
    assert QueueCheckpointFile(str(tmp_path / "congreve")).load() == written


def test_a_damaged_queue_checkpoint_is_as_none(tmp_path: Path) -> None:
    (tmp_path / "queues.json").write_text('{"logEnd": "x"}')
    assert QueueCheckpointFile(str(tmp_path)).load() is None
