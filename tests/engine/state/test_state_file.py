"""State files survive power cuts."""

import errno
import json
import os
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from congreve.engine.errors import StoreError, StoreFormatError
from congreve.engine.state.state_file import StateFile
from congreve.io_backends.files.faulty import Failpoint, FaultyFileSystem
from congreve.io_backends.files.file_system import DISK
from congreve.io_backends.files.recording import Call, RecordingFileSystem


class EndedError(Exception):
    """Stands for the end of the process."""


def end() -> None:
    raise EndedError


def load(path: Path) -> Any:
    return StateFile(str(path)).load(json.loads)


def test_a_missing_state_file_is_not_an_error(tmp_path: Path) -> None:
    assert load(tmp_path / "a.json") is None


def test_replace_keeps_the_old_text_as_backup(tmp_path: Path) -> None:
    file = StateFile(str(tmp_path / "config" / "a.json"))
    file.replace("1")
    file.replace("2")
    assert (tmp_path / "config/a.json").read_text() == "2"
    assert (tmp_path / "config/a.json.bak").read_text() == "1"
    assert sorted(os.listdir(tmp_path / "config")) == ["a.json", "a.json.bak"]


@pytest.mark.parametrize("damage", [b"", b"{", b"\0\0\0\0", b"\xff\xfe", b"[" * 100_000])
def test_a_damaged_file_falls_back_to_its_backup(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "a.json"
    StateFile(str(path)).replace("1")
    StateFile(str(path)).replace("2")
    path.write_bytes(damage)
    assert load(path) == 1


def test_a_damaged_file_does_not_replace_the_good_backup(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.with_suffix(".json.bak").write_text("1")
    path.write_text("{")
    file = StateFile(str(path))
    assert file.load(json.loads) == 1
    file.replace("2")
    assert path.with_suffix(".json.bak").read_text() == "1"
    assert load(path) == 2


def test_a_reader_renames_and_writes_no_file(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{")
    (tmp_path / "a.json.bak").write_text("1")
    file = StateFile(str(tmp_path / "a.json"), read_only=True)
    assert file.load(json.loads) == 1 and file.was_damaged
    with pytest.raises(StoreError, match="read-only"):
        file.replace("2")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "a.json": "{",
        "a.json.bak": "1",
    }


def test_a_damaged_file_without_a_backup_is_reported_and_renamed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(12):
        (tmp_path / "a.json").write_text(f"{{{number}")
        assert load(tmp_path / "a.json") is None
    assert "a.json is damaged" in caplog.text and "continuing without it" in caplog.text
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == [f"a.json.damaged-{number}" for number in range(1, 10)]
    assert (tmp_path / "a.json.damaged-1").read_text() == "{0"
    assert (tmp_path / "a.json.damaged-9").read_text() == "{11"


def test_an_unreadable_file_or_a_folder_in_its_place_does_not_prevent_a_start(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.json").mkdir()
    (tmp_path / "a.json.bak").write_text("1")
    assert load(tmp_path / "a.json") == 1
    StateFile(str(tmp_path / "a.json")).replace("2")
    assert load(tmp_path / "a.json") == 2


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES, errno.ENOTDIR])
def test_a_shortage_or_a_wrong_mode_does_not_count_as_damage(tmp_path: Path, number: int) -> None:
    path = tmp_path / "a.json"
    path.write_text("1")
    files = FaultyFileSystem(DISK, Failpoint("open", "a.json", number))
    with pytest.raises(StoreError, match=os.strerror(number)):
        StateFile(str(path), files=files).load(json.loads)
    assert list(tmp_path.iterdir()) == [path]
    assert load(path) == 1


@pytest.mark.parametrize("text", ['{"a":1}', "{"])
def test_text_that_would_be_read_differently_is_not_written(tmp_path: Path, text: str) -> None:
    file = StateFile(str(tmp_path / "a.json"))
    file.replace('{"a":0}')
    with pytest.raises(StoreFormatError, match="read"):
        file.replace_checked(text, lambda again: json.loads(again) == {"a": 2})
    with pytest.raises(StoreError, match="surrogate"):
        file.replace("\ud800")
    assert load(tmp_path / "a.json") == {"a": 0}


def test_a_failed_write_leaves_the_old_text(tmp_path: Path) -> None:
    file = StateFile(str(tmp_path / "a.json"))
    file.replace("1")
    (tmp_path / "a.json.tmp").mkdir()
    with pytest.raises(StoreError, match="cannot write"):
        file.replace("2")
    assert load(tmp_path / "a.json") == 1


def test_a_save_makes_its_system_calls_in_order(tmp_path: Path) -> None:
    files = RecordingFileSystem(DISK, str(tmp_path))
    file = StateFile(str(tmp_path / "config" / "a.json"), files=files)
    file.replace("1")
    files.calls.clear()
    file.replace("22")
    assert files.calls == [
        Call("make_folder", "config", 0),
        Call("create", "config/a.json.tmp", 0),
        Call("status", "config/a.json", 0),
        Call("set_mode", "config/a.json.tmp", 0),
        Call("write", "config/a.json.tmp", 2),
        Call("sync", "config/a.json.tmp", 0),
        Call("read", "config/a.json.tmp", 3),
        Call("remove", "config/a.json.bak.tmp", 0),
        Call("link", "config/a.json.bak.tmp", 0),
        Call("rename", "config/a.json.bak", 0),
        Call("rename", "config/a.json", 0),
        Call("sync_folder", "config", 0),
    ]


def test_a_save_that_fails_or_ends_at_any_call_leaves_a_complete_text(tmp_path: Path) -> None:
    flow = RecordingFileSystem(DISK, str(tmp_path))
    first = StateFile(str(tmp_path / "whole" / "a.json"), files=flow)
    first.replace("1")
    flow.calls.clear()
    first.replace("2")
    for number, does in product(range(1, len(flow.calls) + 1), (errno.ENOSPC, "before", "after")):
        path = str(tmp_path / f"{number}-{does}" / "a.json")
        StateFile(path).replace("1")
        point = Failpoint("", path.removesuffix("/a.json"), does, nth=number)
        file = StateFile(path, files=FaultyFileSystem(DISK, point, end))
        with suppress(StoreError, EndedError):
            file.replace("2")
        assert StateFile(path).load(int) in (1, 2), point
        file.replace("3")
        assert StateFile(path).load(int) == 3, point


def test_a_secret_file_is_readable_only_by_its_owner_and_has_no_backup(tmp_path: Path) -> None:
    path = tmp_path / "accounts.yml"
    path.write_text("old")
    path.chmod(0o644)
    StateFile(str(path), secret=True).replace("new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["accounts.yml"]
