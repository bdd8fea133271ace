"""Files beside the log that were replaced between two runs of a store."""

import json
import logging
import shutil
from pathlib import Path

import pytest

from congreve.engine.config import StoreConfig
from congreve.engine.state.left_files import LeftFilesFile
from congreve.engine.store import MessageStore
from congreve.engine.store_files.verify import StoreExaminer
from congreve.records.message.message import Record

NAMES = (
    "config/topics.json",
    "config/subscriptionGroup.json",
    "config/consumerOffset.json",
    "config/delayOffset.json",
    "checkpoint",
)


def run(root: Path, messages: int = 1) -> None:
    config = StoreConfig(root_dir=str(root), mapped_file_size_commit_log=1 << 16)
    with MessageStore(config) as store:
        for _ in range(messages):
            store.put(Record(topic="T", body=b"x"))


def made(root: Path) -> Path:
    for name in NAMES[:-1]:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(json.dumps({"of": root.name}))
    run(root)
    return root


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    caplog.clear()
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_another_store_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    one, other = made(tmp_path / "one"), made(tmp_path / "other")
    run(other)
    run(one, 0)
    assert warnings(caplog) == []
    shutil.copy(other / name, one / name)
    said = StoreExaminer(str(one)).verify().changes
    assert len(said) == 1
    assert f"{one / name} is not what the last clean stop left" in said[0]
    run(one, 0)
    assert warnings(caplog) == said
    run(one, 0)
    assert warnings(caplog) == []


def test_a_missing_file_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    one = made(tmp_path / "one")
    (one / NAMES[2]).unlink()
    run(one, 0)
    assert len(warnings(caplog)) == 1


def test_another_program_that_used_the_whole_store_is_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, later = made(tmp_path / "one"), tmp_path / "later"
    shutil.copytree(one, later)
    run(later)
    shutil.copy(one / "congreve/left-files.json", later / "congreve/left-files.json")
    (later / NAMES[0]).write_text("{}")
    caplog.clear()
    run(later, 0)
    assert [line.split(":")[0] for line in warnings(caplog)] == [
        f"another program has used {later} since the last clean stop"
    ]


def test_a_log_of_an_earlier_moment_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = made(tmp_path / "one")
    shutil.copytree(one / "commitlog", tmp_path / "log")
    run(one)
    shutil.rmtree(one / "commitlog")
    shutil.move(tmp_path / "log", one / "commitlog")
    caplog.clear()
    run(one, 0)
    assert any("bytes fewer than at the last clean stop" in line for line in warnings(caplog))


def test_after_a_kill_nothing_is_compared(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    one = made(tmp_path / "one")
    (one / "abort").touch()
    (one / NAMES[0]).write_text("{}")
    assert StoreExaminer(str(one)).verify().changes == []
    run(one, 0)
    assert not any("clean stop" in line for line in warnings(caplog))


def test_a_damaged_note_says_nothing(tmp_path: Path) -> None:
    one = made(tmp_path / "one")
    note = one / "congreve/left-files.json"
    note.write_text(note.read_text().replace("files", "piles"))
    config = StoreConfig(root_dir=str(one))
    assert LeftFilesFile(config, read_only=True).changes() == []
