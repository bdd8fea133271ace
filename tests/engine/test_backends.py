"""Settings and the backend that they select; each backend opens what another one wrote."""

import logging
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from congreve.engine.backends import make_backend
from congreve.engine.config import StoreConfig
from congreve.engine.errors import StoreConfigError
from congreve.engine.results import PutStatus
from congreve.engine.state.tuned import (
    Choice,
    Tuned,
    load_tuned,
    machine_of,
    save_tuned,
    tuned_path,
)
from congreve.engine.store import MessageStore
from congreve.io_backends.backends import BACKENDS, refusal
from congreve.io_backends.errors import BackendError
from congreve.io_backends.fault.fault import FaultBackend
from congreve.io_backends.fault.plan import Fault, FaultPlan
from congreve.io_backends.mapped.mapped import MmapBackend
from congreve.io_backends.pool import PoolBackend
from congreve.records.message.message import Record
from congreve.records.record import decode_record


def config_of(folder: Path, **settings: str) -> StoreConfig:
    keys = {"storePathRootDir": str(folder), "mappedFileSizeCommitLog": "65536"} | settings
    return msgspec.convert(keys, StoreConfig, strict=False)


def test_the_keys_of_the_reference_for_the_pool_are_read(tmp_path: Path) -> None:
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
    assert backend.free_buffers == 3
    assert MmapBackend().free_buffers == 2**31 - 1


def test_an_empty_pool_refuses_messages_until_the_disk_has_caught_up(
    tmp_path: Path,
) -> None:
    """No other flush happens: the interval of ASYNC_FLUSH is an hour."""
    hour = "3600000"
    config = config_of(
        tmp_path,
        flushDiskType="ASYNC_FLUSH",
        flushIntervalCommitLog=hour,
        flushCommitLogThoroughInterval=hour,
    )
    slow = FaultPlan(groups=dict.fromkeys(range(100), Fault(delay_s=0.1)))
    backend = FaultBackend(PoolBackend(buffers=1, locked=False), slow)
    statuses = []
    with MessageStore(config, backend=backend) as store:
        deadline = time.monotonic() + 60
        taken = 0
        while taken < 20 and time.monotonic() < deadline:
            statuses.append(store.put(Record(topic="T", body=b"%d " % taken * 4000)).status)
            if statuses[-1] is PutStatus.PUT_OK:
                taken += 1
            else:
                time.sleep(0.01)
        assert taken == 20
        for number in range(taken):
            record = decode_record(b"".join(store.get("T", 0, number, 1).buffers))
            assert record.body == b"%d " % number * 4000
    assert set(statuses) == {PutStatus.PUT_OK, PutStatus.CREATE_MAPEDFILE_FAILED}


def test_new_segments_are_prewritten_if_each_group_is_synced(tmp_path: Path) -> None:
    assert isinstance(make_backend(config_of(tmp_path)), MmapBackend)
    assert make_backend(config_of(tmp_path)).prewrites
    assert not make_backend(config_of(tmp_path, flushDiskType="ASYNC_FLUSH")).prewrites


@pytest.mark.parametrize(
    "settings",
    [
        {"ioBackend": "floppy"},
        {"ioBackend": "mmap", "transientStorePoolEnable": "true"},
        {"ioBackend": "pool", "transientStorePoolSize": "0"},
        {"mappedFileSizeCommitLog": "1000"},
        {"mappedFileSizeConsumeQueue": "99999999999"},
        {"maxMessageSize": "-1"},
        {"maxHashSlotNum": "99999999999"},
        {"maxIndexNum": "2000000000"},
    ],
)
def test_impossible_settings_are_named(tmp_path: Path, settings: dict[str, str]) -> None:
    with pytest.raises(StoreConfigError, match=list(settings)[-1]):
        config_of(tmp_path, **settings)


def test_a_pool_larger_than_the_memory_is_refused_unless_swapping_is_allowed(
    tmp_path: Path,
) -> None:
    sizes = {"transientStorePoolSize": "100000", "mappedFileSizeCommitLog": str(1 << 30)}
    with pytest.raises(BackendError, match="transientStorePoolSize=100000"):
        make_backend(config_of(tmp_path, transientStorePoolEnable="true", **sizes))
    make_backend(config_of(tmp_path, ioBackend="pool", transientStorePoolLocked="false", **sizes))


def refuse_uring(monkeypatch: pytest.MonkeyPatch, refusal: Callable[[str, int], str]) -> None:
    refused = BACKENDS["uring"]._replace(refusal=refusal)
    monkeypatch.setattr("congreve.engine.backends.BACKENDS", {**BACKENDS, "uring": refused})


def test_a_forbidden_ring_is_replaced_and_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refuse_uring(monkeypatch, lambda *_: "no, not here")
    with caplog.at_level(logging.WARNING):
        assert isinstance(make_backend(config_of(tmp_path, ioBackend="uring")), PoolBackend)
        large = config_of(tmp_path, mappedFileSizeCommitLog=str(1 << 30))
        assert isinstance(make_backend(large), MmapBackend)
    assert caplog.text.count("no, not here") == 2


def test_auto_chooses_the_backend_that_was_tuned(tmp_path: Path) -> None:
    save_tuned(str(tmp_path), Tuned(io_backend="pool", flush_disk_type="SYNC_FLUSH", reason="x"))
    assert isinstance(make_backend(config_of(tmp_path)), PoolBackend)
    assert isinstance(make_backend(config_of(tmp_path, ioBackend="mmap")), MmapBackend)


def test_a_choice_of_another_kernel_is_followed_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    here = machine_of(str(tmp_path))
    tuned = Tuned(io_backend="mmap", flush_disk_type="SYNC_FLUSH", reason="x", machine=here)
    save_tuned(str(tmp_path), tuned)
    make_backend(config_of(tmp_path))
    assert "another machine" not in caplog.text
    older = msgspec.structs.replace(here, kernel="1.0")
    save_tuned(str(tmp_path), msgspec.structs.replace(tuned, machine=older))
    assert isinstance(make_backend(config_of(tmp_path)), MmapBackend)
    assert f"the kernel was 1.0 and is {here.kernel}; run it again" in caplog.text


def test_auto_with_async_flush_ignores_a_choice_for_sync_flush(tmp_path: Path) -> None:
    """A killed process would lose acknowledged messages; earlier versions did not save the
    policy."""
    old = Tuned(io_backend="pool", flush_disk_type="SYNC_FLUSH", reason="x")
    chosen = Choice(io_backend="mmap", reason="y")
    for tuned in (old, msgspec.structs.replace(old, async_flush=chosen)):
        save_tuned(str(tmp_path), tuned)
        assert load_tuned(str(tmp_path)) == tuned
        for flush, kind in (("ASYNC_FLUSH", MmapBackend), ("SYNC_FLUSH", PoolBackend)):
            assert type(make_backend(config_of(tmp_path, flushDiskType=flush))) is kind


@pytest.mark.parametrize("name", ["pool", "uring", "mmap", "auto"])
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_async_flush_over_memory_of_the_process_is_logged_once_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, flush: str
) -> None:
    settings = {"ioBackend": name, "transientStorePoolLocked": "false"}
    make_backend(config_of(tmp_path, flushDiskType=flush, **settings))
    said = caplog.text.count("a killed broker loses the messages that it acknowledged")
    assert said == (flush == "ASYNC_FLUSH" and name in ("pool", "uring"))


AUTO = '{"ioBackend": "auto", "flushDiskType": "SYNC_FLUSH", "reason": ""}'
ASYNC_TAPE = AUTO.replace("auto", "mmap")[:-1] + ', "asyncFlush": {"ioBackend": "t", "reason": ""}}'


@pytest.mark.parametrize("text", ["{", '{"ioBackend": "tape"}', "[]", AUTO, ASYNC_TAPE])
def test_a_damaged_choice_is_logged_and_does_not_prevent_a_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    path = Path(tuned_path(str(tmp_path)))
    path.parent.mkdir()
    path.write_text(text)
    make_backend(config_of(tmp_path))
    assert "tuned.json is damaged" in caplog.text
    assert path.with_name("tuned.json.damaged-1").read_text() == text


def test_auto_probes_the_ring_only_for_synced_large_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def refuse(folder: str, _size: int) -> str:
        asked.append(folder)
        return "no"

    refuse_uring(monkeypatch, refuse)
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
    names = [name for name in BACKENDS if refusal(name, str(tmp_path)) is None]
    written = 0
    order = [*names, names[0], *reversed(names)]  # each of them opens what each other one wrote
    for name in order:
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
    assert written == 60 * len(order)
