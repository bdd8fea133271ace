"""Settings under RocketMQ's names."""

import msgspec
import pytest

from congreve.engine.config import StoreConfig, parse_delay_levels
from congreve.engine.errors import StoreConfigError


def test_the_keys_of_the_reference_are_read_from_text() -> None:
    config = msgspec.convert(
        {
            "storePathRootDir": "/data/store",
            "mappedFileSizeCommitLog": "4096",
            "flushDiskType": "ASYNC_FLUSH",
            "checkCRCOnRecover": "false",
            "deleteWhen": "04",
        },
        StoreConfig,
        strict=False,
    )
    assert config.commit_log_dir == "/data/store/commitlog"
    assert config.mapped_file_size_commit_log == 4096
    assert not config.sync_flush
    assert not config.check_crc_on_recover


def test_consume_queue_files_hold_whole_entries() -> None:
    config = StoreConfig(root_dir="r", mapped_file_size_consume_queue=81)
    assert config.mapped_file_size_consume_queue == 100


def test_default_delay_levels_are_the_reference_ones() -> None:
    levels = StoreConfig(root_dir="r").delay_levels_ms
    assert len(levels) == 18
    assert (levels[0], levels[4], levels[17]) == (1_000, 60_000, 7_200_000)


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"flush_disk_type": "SOMETIMES"}, "SOMETIMES"),
        ({"message_delay_level": "1s 5x"}, "5x"),
        ({"message_delay_level": "s"}, "'s'"),
        ({"delete_when": "25"}, "25"),
        ({"mapped_file_size_commit_log": 10}, "10"),
        ({"mapped_file_size_commit_log": 1 << 31}, "mappedFileSizeCommitLog=2147483648"),
        ({"max_index_num": 0}, "maxIndexNum"),
        ({"transient_store_pool_size": 0}, "transientStorePoolSize"),
        ({"flush_interval_commit_log": -5}, "flushIntervalCommitLog=-5"),
        ({"commit_interval_commit_log": 0}, "commitIntervalCommitLog"),
    ],
)
def test_a_setting_that_cannot_work_names_its_value(
    settings: dict[str, object], names: str
) -> None:
    with pytest.raises(StoreConfigError, match=names):
        StoreConfig(root_dir="r", **settings)  # type: ignore[arg-type]


def test_a_store_may_have_no_delay_levels() -> None:
    assert parse_delay_levels("") == ()
