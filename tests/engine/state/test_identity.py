"""The id of a store."""

from pathlib import Path

import pytest

from congreve.engine.config import StoreConfig
from congreve.engine.state.identity import IdentityFile
from congreve.engine.store import MessageStore


def config_of(folder: Path) -> StoreConfig:
    return StoreConfig(root_dir=str(folder), mapped_file_size_commit_log=1 << 20)


def test_a_store_keeps_the_id_that_its_first_start_made(tmp_path: Path) -> None:
    ids = []
    for _ in range(2):
        with MessageStore(config_of(tmp_path / "one")) as store:
            ids.append(store.identity)
    with MessageStore(config_of(tmp_path / "two")) as store:
        ids.append(store.identity)
    assert ids[0] == ids[1] != ids[2]


def test_a_store_without_an_id_has_none_until_it_starts(tmp_path: Path) -> None:
    file = IdentityFile(str(tmp_path))
    assert file.load() is None
    made = file.load_or_make()
    assert len(made) == 32
    assert IdentityFile(str(tmp_path), read_only=True).load() == made


@pytest.mark.parametrize("text", ["", "{}", '{"crc":1,"state":"0"}', '{"crc":0,"state":"no"}'])
def test_a_damaged_id_is_no_id(tmp_path: Path, text: str) -> None:
    (tmp_path / "identity.json").write_text(text)
    assert IdentityFile(str(tmp_path), read_only=True).load() is None
