"""Parts of a store outside its root: another store and a copy of the root do not get them."""

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest
from harness.stores.small_store import small_store

from congreve.engine.errors import StoreError
from congreve.engine.store import MessageStore
from congreve.io_backends.files.faulty import Failpoint, FaultyFileSystem
from congreve.io_backends.files.file_system import DISK, FileSystem
from congreve.records.message.message import Record

LINKED = ("commitlog", "consumequeue", "index", "config", "congreve")


def store_of(root: Path, log: Path | None = None, files: FileSystem = DISK) -> MessageStore:
    settings: dict[str, Any] = {} if log is None else {"commit_log_dir": str(log)}
    config = small_store(root, flush_consume_queue_thorough_interval=3_600_000, **settings)
    return MessageStore(config, files=files, disk_use=lambda _: 0.5)


def live(root: Path, log: Path | None = None, count: int = 1) -> int:
    """Put messages in one run of a store; the number that it holds then."""
    with store_of(root, log) as store:
        for _ in range(count):
            store.put(Record(topic="T", body=b"x", properties={"KEYS": "k"}))
        return store.max_offset("T", 0)


def refused(root: Path, log: Path | None, why: str) -> None:
    """Check that the store does not start, and changes nothing."""
    folders = {root, log or root}
    before = [sorted(folder.rglob("*")) for folder in folders]
    with pytest.raises(StoreError, match=why):
        store_of(root, log).start()
    assert [sorted(folder.rglob("*")) for folder in folders] == before


@pytest.mark.parametrize("more", [0, 1])
def test_a_copy_of_a_root_does_not_get_the_log_in_the_original(tmp_path: Path, more: int) -> None:
    store, copy = tmp_path / "store", tmp_path / "monday"
    live(store)
    shutil.copytree(store, copy)
    if more:
        live(store, count=more)
    refused(copy, store / "commitlog", f"is a part of the store in {store}, not of {copy}")
    assert live(copy) == 2
    assert live(copy, copy / "commitlog") == 3
    assert live(store, store / "commitlog") == 2 + more


@pytest.mark.parametrize("is_early", [False, True])
def test_a_copy_of_a_root_does_not_get_the_log_on_another_disk(
    tmp_path: Path, is_early: bool
) -> None:
    store, log, copy = tmp_path / "store", tmp_path / "disk/commitlog", tmp_path / "monday"
    if is_early:
        with store_of(store, log) as running:
            running.put(Record(topic="T", body=b"x"))
            shutil.copytree(store, copy)
    else:
        live(store, log)
        shutil.copytree(store, copy)
    refused(copy, log, f"{log} belongs to the store in {store}, not to {copy}")
    shutil.copytree(log, tmp_path / "copied/commitlog")
    assert live(copy, tmp_path / "copied/commitlog") == 2
    assert live(store, log) == 2


def test_a_log_that_went_on_is_refused_by_an_older_root_in_the_same_place(tmp_path: Path) -> None:
    store, log = tmp_path / "store", tmp_path / "disk/commitlog"
    live(store, log)
    shutil.copytree(store, tmp_path / "monday")
    live(store, log)
    live(store, log)
    shutil.rmtree(store)
    (tmp_path / "monday").rename(store)
    refused(store, log, "was used with a later state of this store")
    (tmp_path / "disk/commitlog.owner.json").unlink()
    (tmp_path / "disk/commitlog.owner.json.bak").unlink()
    assert live(store, log) == 4


def test_the_log_of_a_lost_root_is_not_given_to_another_store(tmp_path: Path) -> None:
    store, log, other = tmp_path / "store", tmp_path / "disk/commitlog", tmp_path / "other"
    live(store, log)
    live(other)
    shutil.rmtree(store)
    refused(other, log, f"belongs to another store, which was in {store}")
    assert live(tmp_path / "new", log) == 2


def test_a_store_may_be_moved_as_a_whole(tmp_path: Path) -> None:
    """Also with a log outside, and through RocketMQ, which knows none of these files."""
    store, log = tmp_path / "store", tmp_path / "disk/commitlog"
    live(store, log)
    store.rename(tmp_path / "moved")
    assert live(tmp_path / "moved", log) == 2
    (tmp_path / "disk").rename(tmp_path / "disk2")
    assert live(tmp_path / "moved", tmp_path / "disk2/commitlog") == 3
    live(tmp_path / "inside")
    (tmp_path / "inside").rename(tmp_path / "elsewhere")
    assert live(tmp_path / "elsewhere") == 2


def test_a_log_that_was_moved_out_of_its_root_stays_usable(tmp_path: Path) -> None:
    """What is left in the old root is older: an earlier version has used the new one since."""
    old, new = tmp_path / "old", tmp_path / "new"
    live(old)
    shutil.copytree(old, new, ignore=shutil.ignore_patterns("commitlog"))
    shutil.copytree(old / "commitlog", new / "commitlog")
    live(new)
    shutil.rmtree(old / "commitlog")
    (new / "commitlog").rename(old / "commitlog")
    assert live(new, old / "commitlog") == 3
    refused(old, None, f"belongs to the store in {new}, not to {old}")


def test_a_store_of_one_folder_gets_no_file_of_owners(tmp_path: Path) -> None:
    live(tmp_path / "store")
    assert not list(tmp_path.rglob("*owner*"))
    assert not list(tmp_path.rglob("parts.json*"))


@pytest.mark.parametrize("name", LINKED)
def test_a_copied_link_does_not_lead_to_the_original(tmp_path: Path, name: str) -> None:
    store, copy = tmp_path / "store", tmp_path / "monday"
    (tmp_path / "disk" / name).mkdir(parents=True)
    store.mkdir()
    (store / name).symlink_to(tmp_path / "disk" / name)
    live(store)
    (store / "config").mkdir(exist_ok=True)
    (store / "config/topics.json").touch()
    live(store)
    shutil.copytree(store, copy, symlinks=True)
    with pytest.raises(StoreError, match=f"belongs to the store in {store}, not to {copy}"):
        store_of(copy).start()
    assert live(store) == 3


def test_an_owner_that_cannot_be_noted_does_not_stop_the_store(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    failpoint = Failpoint("create", "owner.json.tmp", errno.EROFS, times=1 << 30)
    files = FaultyFileSystem(DISK, failpoint)
    with store_of(tmp_path / "store", tmp_path / "disk/commitlog", files) as store:
        store.put(Record(topic="T", body=b"x"))
    assert caplog.text.count("nothing says that") == 1
