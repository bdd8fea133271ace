"""State files survive what power cuts leave behind."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from congreve.engine.errors import StoreError, StoreFormatError
from congreve.engine.statefile import StateFile


def load(path: Path) -> Any:
    return StateFile(str(path)).load(json.loads)


def test_a_missing_file_is_no_error(tmp_path: Path) -> None:
    assert load(tmp_path / "a.json") is None


def test_replace_keeps_the_old_text_as_backup(tmp_path: Path) -> None:
    file = StateFile(str(tmp_path / "config" / "a.json"))
    file.replace("1")
    file.replace("2")
    assert (tmp_path / "config/a.json").read_text() == "2"
    assert (tmp_path / "config/a.json.bak").read_text() == "1"
    assert sorted(os.listdir(tmp_path / "config")) == ["a.json", "a.json.bak"]


@pytest.mark.parametrize("damage", [b"", b"{", b"\0\0\0\0", b"\xff\xfe"])
def test_a_damaged_file_falls_back_to_its_backup(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "a.json"
    StateFile(str(path)).replace("1")
    StateFile(str(path)).replace("2")
    path.write_bytes(damage)
    assert load(path) == 1


def test_a_damaged_file_does_not_push_the_good_backup_away(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.with_suffix(".json.bak").write_text("1")
    path.write_text("{")
    file = StateFile(str(path))
    assert file.load(json.loads) == 1
    file.replace("2")
    assert path.with_suffix(".json.bak").read_text() == "1"
    assert load(path) == 2


def test_damage_without_a_backup_is_told_not_forgotten(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(StoreFormatError, match=r"a\.json is damaged"):
        load(tmp_path / "a.json")


def test_a_failed_write_leaves_the_old_text(tmp_path: Path) -> None:
    file = StateFile(str(tmp_path / "a.json"))
    file.replace("1")
    (tmp_path / "a.json.tmp").mkdir()
    with pytest.raises(StoreError, match="cannot write"):
        file.replace("2")
    assert load(tmp_path / "a.json") == 1
