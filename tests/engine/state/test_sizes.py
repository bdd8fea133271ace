"""The sizes of a store's files."""

from pathlib import Path

import pytest

from congreve.engine.config import StoreConfig
from congreve.engine.errors import StoreConfigError, StoreFormatError
from congreve.engine.state.sizes import (
    FileSizes,
    SizesFile,
    adopt_sizes,
    kept_sizes,
    small_sizes,
)
from congreve.engine.store import MessageStore
from congreve.engine.store_files.verify import StoreExaminer
from congreve.records.message.message import Record

SMALL = FileSizes(mapped_file_size_commit_log=1 << 16, max_hash_slot_num=10, max_index_num=40)


def config_of(folder: Path) -> StoreConfig:
    """Settings that name no size."""
    return StoreConfig(root_dir=str(folder))


def make(folder: Path, sizes: FileSizes = SMALL) -> None:
    config = config_of(folder)
    adopt_sizes(config, (), sizes)
    with MessageStore(config) as store:
        store.put(Record(topic="T", body=b"x", properties={"KEYS": "k"}))


def test_the_defaults_are_those_of_the_settings(tmp_path: Path) -> None:
    assert FileSizes() == FileSizes.of(config_of(tmp_path))
    assert FileSizes().settings == {}


def test_a_store_keeps_the_sizes_of_its_first_start(tmp_path: Path) -> None:
    make(tmp_path)
    assert kept_sizes(tmp_path) == SMALL
    make(tmp_path, FileSizes(mapped_file_size_commit_log=1 << 20))
    assert kept_sizes(tmp_path) == SMALL
    config = config_of(tmp_path)
    adopt_sizes(config, ())
    with MessageStore(config) as store:
        assert store.max_offset("T", 0) == 2
    info = StoreExaminer(str(tmp_path)).info()
    assert info.sizes.settings == {
        "mappedFileSizeCommitLog": 65536,
        "maxHashSlotNum": 10,
        "maxIndexNum": 40,
    }


def test_another_size_is_refused_where_it_is_named(tmp_path: Path) -> None:
    make(tmp_path)
    config = config_of(tmp_path)
    with pytest.raises(StoreConfigError, match=r"^maxIndexNum=20000000: .* maxIndexNum=40"):
        adopt_sizes(config, ("maxIndexNum",))
    with pytest.raises(StoreFormatError, match=r"mappedFileSizeCommitLog=65536.*maxHashSlotNum=10"):
        MessageStore(config).start()
    config.max_index_num = 40
    adopt_sizes(config, ("maxIndexNum",))
    assert FileSizes.of(config) == SMALL


def test_a_store_of_an_earlier_version_stays_as_it_is(tmp_path: Path) -> None:
    usual = FileSizes(mapped_file_size_commit_log=1 << 20)
    make(tmp_path, usual)
    for path in (tmp_path / "congreve").glob("sizes.json*"):
        path.unlink()
    config = config_of(tmp_path)
    adopt_sizes(config, (), SMALL)
    assert FileSizes.of(config) == FileSizes()
    config.mapped_file_size_commit_log = 1 << 20
    adopt_sizes(config, ("mappedFileSizeCommitLog",), SMALL)
    with MessageStore(config) as store:
        assert store.max_offset("T", 0) == 1
    assert kept_sizes(tmp_path) == usual


def test_sizes_that_are_named_for_a_new_store_win(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    adopt_sizes(config, ("maxIndexNum",), SMALL)
    assert (config.max_index_num, config.max_hash_slot_num) == (20_000_000, 10)


def test_a_start_that_fails_leaves_no_sizes(tmp_path: Path) -> None:
    config = config_of(tmp_path / "s")
    config.mapped_file_size_commit_log = 1 << 20
    config.io_backend = "mmap"
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "commitlog").mkdir()
    (tmp_path / "s" / "commitlog" / f"{0:020d}").write_bytes(bytes(1000))
    with pytest.raises(StoreFormatError):
        MessageStore(config).start()
    assert SizesFile(config.own_dir).load() is None


@pytest.mark.parametrize("largest", [1, 4 << 20, 5 << 20, 64 << 20, (1 << 31) - 1])
def test_a_small_segment_holds_the_largest_message(largest: int) -> None:
    segment = small_sizes(largest).mapped_file_size_commit_log
    assert segment >= min(largest + (128 << 10), 1 << 30)
    assert 32 << 20 <= segment <= 1 << 30


def test_a_message_that_no_segment_holds_is_foretold(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make(tmp_path)
    caplog.clear()
    config = StoreConfig(root_dir=str(tmp_path), max_message_size=1 << 16)
    adopt_sizes(config, ())
    assert not caplog.text
    config = StoreConfig(root_dir=str(tmp_path), max_message_size=(1 << 16) + 1)
    adopt_sizes(config, ())
    assert "maxMessageSize=65537: the segments of" in caplog.text
