"""``congreve store backup`` and ``restore``: a whole store, and never another one's log."""

import json
import os
import shutil
from pathlib import Path

import pytest

from congreve.base.errors import CongreveError
from congreve.console.store_backup import make_backup, restore_backup
from tests.console.conftest import Daemon, congreve


def conf(folder: Path, root: Path, log: Path) -> Path:
    file = folder / f"{root.name}.conf"
    file.write_text(
        f"brokerName=b\nbrokerIP1=127.0.0.1\nbindAddress=127.0.0.1\nlistenPort=0\n"
        f"answerRouteRequests=true\nstorePathRootDir={root}\nstorePathCommitLog={log}\n"
    )
    return file


class Broker(Daemon):
    """A broker that answers as a name server, too."""

    def __init__(self, file: Path, *options: str) -> None:
        super().__init__("broker", "-c", str(file), *options)
        self.address = self.ready.rpartition(" ")[2]

    def __enter__(self) -> "Broker":
        return self

    def __exit__(self, *_: object) -> None:
        assert self.stop() == 0

    def send(self, body: str) -> None:
        sent = congreve("send", "-t", "orders", "-m", body, "-n", self.address)
        assert sent.returncode == 0, sent.stderr

    def bodies(self) -> set[str]:
        shown = congreve("cat", "-C", "-t", "orders", "-e", "-n", self.address)
        return set(shown.stdout.split())


def store(*arguments: object) -> dict[str, object]:
    done = congreve("store", *map(str, arguments), "--output", "json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    return dict(row)


def test_a_running_store_with_its_log_elsewhere_is_restored_with_its_own_log(
    tmp_path: Path,
) -> None:
    root, log, monday = tmp_path / "store", tmp_path / "disk2" / "log", tmp_path / "monday"
    file = conf(tmp_path, root, log)
    with Broker(file) as broker:
        broker.send("monday")
        made = store("backup", monday, "-c", file)
        assert made["root"] == str(root) and made["commit_log"] == str(log)
        broker.send("tuesday")
    refused = congreve("store", "restore", str(monday), "-c", str(file))
    assert (refused.returncode, "is in use" in refused.stderr) == (1, True)
    restored = tmp_path / "restored"
    paths = store("restore", monday, restored)
    assert paths["storePathCommitLog"] == str(restored / "commitlog")
    options = [f"-o{key}={paths[key]}" for key in ("storePathRootDir", "storePathCommitLog")]
    with Broker(file, *options) as broker:
        assert broker.bodies() == {"monday"}
    other = conf(tmp_path, tmp_path / "other", tmp_path / "disk3" / "log")
    store("restore", monday, "-c", other)
    with Broker(other) as broker:
        assert broker.bodies() == {"monday"}
    with Broker(file) as broker:
        assert broker.bodies() == {"monday", "tuesday"}


def test_a_folder_that_is_used_or_no_backup_is_refused(tmp_path: Path) -> None:
    for name in ("store", "full", "half"):
        (tmp_path / name / "commitlog").mkdir(parents=True)
    (tmp_path / "full" / "file").write_text("x")
    for arguments, says in (
        (("backup", "full", "store"), "exists"),
        (("backup", "store/inside", "store"), "is inside the store"),
        (("restore", "half", "new"), "no complete backup"),
        (("backup", "new"), "name the store's folder"),
        (("backup", "new", "nowhere"), "is not a store"),
    ):
        command, *paths = arguments
        done = congreve("store", command, *(str(tmp_path / path) for path in paths))
        assert done.returncode != 0 and says in done.stderr, (arguments, done.stderr)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("damage", ["cut", "missing", "without its log"])
def test_a_damaged_backup_is_refused(tmp_path: Path, damage: str) -> None:
    root, copy, new = (tmp_path / name for name in ("store", "copy", "new"))
    (root / "commitlog").mkdir(parents=True)
    for name in ("commitlog/0", "checkpoint"):
        (root / name).write_bytes(b"data")
    make_backup(root, root / "commitlog", copy, lambda size: None)
    if damage == "cut":
        (copy / "commitlog/0").write_bytes(b"da")
    elif damage == "missing":
        (copy / "checkpoint").unlink()
    else:
        shutil.rmtree(copy / "commitlog")
    with pytest.raises(CongreveError, match="files are missing or cut"):
        restore_backup(copy, new, new / "commitlog", lambda size: None)
    assert not new.exists() and not list(tmp_path.glob("*.restoring"))


@pytest.mark.parametrize("apart", [False, True])
def test_a_log_of_the_same_size_from_another_store_is_refused(tmp_path: Path, apart: bool) -> None:
    copies = []
    for number in range(2):
        root = tmp_path / f"store-{number}"
        (root / "commitlog").mkdir(parents=True)
        with (root / "commitlog" / "0").open("wb") as file:
            file.write(b"record %d" % number)
            file.truncate(1 << 20)
        copies.append(tmp_path / f"copy-{number}")
        make_backup(root, root / "commitlog", copies[-1], lambda size: None)
    new = tmp_path / "new"
    log = tmp_path / "log" if apart else new / "commitlog"
    # Without its holes it is the same file.
    whole = (copies[0] / "commitlog" / "0").read_bytes()
    (copies[0] / "commitlog" / "0").write_bytes(whole)
    restore_backup(copies[0], tmp_path / "first", tmp_path / "first" / "commitlog", lambda _: None)
    shutil.copytree(copies[1] / "commitlog", copies[0] / "commitlog", dirs_exist_ok=True)
    with pytest.raises(CongreveError, match="commitlog/0 is not the file that was backed up"):
        restore_backup(copies[0], new, log, lambda size: None)
    assert not new.exists() and not log.exists() and not list(tmp_path.glob("*.restoring"))


def test_a_copy_has_holes_times_and_linked_folders(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    for folder in (root / "commitlog", elsewhere):
        folder.mkdir(parents=True)
    (root / "consumequeue").symlink_to(elsewhere)
    (elsewhere / "entry").write_bytes(b"queue")
    (root / "lock").write_bytes(b"lock")
    with (root / "commitlog" / "0").open("wb") as file:
        file.write(b"record")
        file.truncate(64 << 20)
    os.utime(root / "commitlog" / "0", (1_000, 1_000))
    made = make_backup(root, root / "commitlog", tmp_path / "copy", lambda size: None)
    copied = tmp_path / "copy" / "commitlog" / "0"
    assert (copied.stat().st_size, copied.stat().st_mtime) == (64 << 20, 1_000)
    assert copied.stat().st_blocks * 512 < 1 << 20
    assert made.files == 2 and not (tmp_path / "copy" / "lock").exists()
    assert (tmp_path / "copy" / "consumequeue" / "entry").read_bytes() == b"queue"
    new = tmp_path / "new"
    restore_backup(tmp_path / "copy", new, new / "commitlog", lambda size: None)
    assert (new / "commitlog" / "0").read_bytes()[:6] == b"record"
    assert not (new / "backup.json").exists() and not list(tmp_path.glob("*.restoring"))
    with pytest.raises(CongreveError, match="is in use"):
        restore_backup(tmp_path / "copy", new, new / "commitlog", lambda size: None)
