"""Settings and the backend they mean; every backend opens what another one wrote."""

import itertools
import logging
from pathlib import Path

import msgspec
import pytest

from congreve.engine.backends import make_backend
from congreve.engine.config import StoreConfig
from congreve.engine.errors import StoreConfigError, StoreError
from congreve.engine.store import MessageStore, PutStatus
from congreve.engine.tuned import Tuned, save_tuned, tuned_path
from congreve.io_backends.mapped import MmapBackend
from congreve.io_backends.pool import PoolBackend
from congreve.io_backends.probe import uring_refusal
from congreve.records.message import Record
from congreve.records.record import decode_record


def config_of(folder: Path, **settings: str) -> StoreConfig:
    keys = {"storePathRootDir": str(folder), "mappedFileSizeCommitLog": "65536"} | settings
    return msgspec.convert(keys, StoreConfig, strict=False)


def test_the_reference_keys_of_the_pool(tmp_path: Path) -> None:
    backend = make_backend(
        config_of(
            tmp_path,
            transientStorePoolEnable="true",
            transientStorePoolSize="3",
            commitIntervalCommitLog="17",
            commitCommitLogLeastPages="2",
            commitCommitLogThoroughInterval="99",
        )
    )
    assert isinstance(backend, PoolBackend)
    assert (backend.limit, backend.locked) == (3, True)
    assert (backend.commit_interval_ms, backend.commit_least_pages) == (17, 2)
    assert backend.commit_thorough_ms == 99


def test_new_segments_are_prewritten_where_each_group_is_synced(tmp_path: Path) -> None:
    assert isinstance(make_backend(config_of(tmp_path)), MmapBackend)
    assert make_backend(config_of(tmp_path)).prewrites
    assert not make_backend(config_of(tmp_path, flushDiskType="ASYNC_FLUSH")).prewrites


@pytest.mark.parametrize(
    "settings",
    [
        {"ioBackend": "floppy"},
        {"ioBackend": "mmap", "transientStorePoolEnable": "true"},
        {"ioBackend": "pool", "transientStorePoolSize": "0"},
    ],
)
def test_impossible_settings_are_named(tmp_path: Path, settings: dict[str, str]) -> None:
    with pytest.raises(StoreConfigError, match=r"ioBackend|transient"):
        config_of(tmp_path, **settings)


def test_a_ring_that_is_forbidden_is_replaced_with_a_line_of_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("congreve.engine.backends.uring_refusal", lambda *_: "no, not here")
    with caplog.at_level(logging.WARNING):
        assert isinstance(make_backend(config_of(tmp_path, ioBackend="uring")), PoolBackend)
    assert "no, not here" in caplog.text


def test_auto_goes_by_what_was_tuned(tmp_path: Path) -> None:
    save_tuned(str(tmp_path), Tuned(io_backend="pool", flush_disk_type="SYNC_FLUSH", reason="x"))
    assert isinstance(make_backend(config_of(tmp_path)), PoolBackend)
    assert isinstance(make_backend(config_of(tmp_path, ioBackend="mmap")), MmapBackend)


@pytest.mark.parametrize("text", ["{", '{"ioBackend": "tape"}', "[]"])
def test_a_damaged_choice_is_named(tmp_path: Path, text: str) -> None:
    path = Path(tuned_path(str(tmp_path)))
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(StoreError, match=r"tuned\.json"):
        make_backend(config_of(tmp_path))


def test_auto_probes_the_ring_only_for_synced_large_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def refuse(folder: str, _size: int) -> str:
        asked.append(folder)
        return "no"

    monkeypatch.setattr("congreve.engine.backends.uring_refusal", refuse)
    store = tmp_path / "deep" / "store"
    large = str(1 << 30)
    for settings in (
        {},
        {"mappedFileSizeCommitLog": large, "flushDiskType": "ASYNC_FLUSH"},
        {"mappedFileSizeCommitLog": large},
    ):
        assert isinstance(make_backend(config_of(store, **settings)), MmapBackend)
    assert asked == [str(tmp_path)]
    assert not store.exists(), "choosing must leave nothing on disk"


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_stores_change_backends_and_keep_every_message(tmp_path: Path, flush: str) -> None:
    names = ["mmap", "pool"]
    if uring_refusal(str(tmp_path)) is None:
        names.append("uring")
    written = 0
    for name in itertools.chain(names, reversed(names), names):
        with MessageStore(config_of(tmp_path, ioBackend=name, flushDiskType=flush)) as store:
            for offset in range(written):
                record = decode_record(b"".join(store.get("T", 0, offset, 1).buffers))
                assert record.body == b"%d " % offset * 300
            for _ in range(60):
                put = store.put(Record(topic="T", body=b"%d " % written * 300))
                if put.status is not PutStatus.PUT_OK:  # the disk is behind: the pool is empty
                    assert put.status is PutStatus.CREATE_MAPEDFILE_FAILED
                    assert store.wait_durable(store.log.max_offset, 20)
                    put = store.put(Record(topic="T", body=b"%d " % written * 300))
                found = store.get("T", 0, written, 1)
                assert decode_record(b"".join(found.buffers)).body == b"%d " % written * 300
                written += 1
            assert store.wait_durable(put.end, 20)
    assert written == 3 * 60 * len(names)
