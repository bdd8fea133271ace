"""One broker for one folder."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from congreve.engine.config import StoreConfig
from congreve.engine.errors import StoreError, StoreLockedError
from congreve.engine.state.lock import FolderLock, StoreLock
from congreve.engine.store import MessageStore
from congreve.io_backends.files.faulty import Failpoint, FaultyFileSystem
from congreve.io_backends.files.file_system import DISK

HOLD_AS_THE_REFERENCE = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
print("held", flush=True)
sys.stdin.read()
"""
HOLD_AS_OURS = """
import sys
from congreve.engine.state.lock import StoreLock
lock = StoreLock(sys.argv[1])
lock.acquire()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("program", [HOLD_AS_THE_REFERENCE, HOLD_AS_OURS])
def test_a_store_in_use_names_its_process(tmp_path: Path, program: str) -> None:
    path = str(tmp_path / "lock")
    with subprocess.Popen(
        [sys.executable, "-c", program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(StoreLockedError, match=f"process {holder.pid}"):
            StoreLock(path).acquire()
        holder.communicate()
    lock = StoreLock(path)
    lock.acquire()
    assert lock.held
    lock.release()


def test_our_lock_keeps_the_reference_out(tmp_path: Path) -> None:
    lock = StoreLock(str(tmp_path / "lock"))
    lock.acquire()
    probe = (
        "import fcntl, os, sys; "
        "fcntl.lockf(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)"
    )
    run = subprocess.run([sys.executable, "-c", probe, lock.path], capture_output=True, check=False)
    assert b"BlockingIOError" in run.stderr
    lock.release()


def test_two_stores_of_one_process_exclude_each_other(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    first = StoreLock(path)
    first.acquire()
    with pytest.raises(StoreLockedError, match="another store of this process"):
        StoreLock(path).acquire()
    # Closing another descriptor of the file must not drop the lock, as plain record locks do.
    with pytest.raises(StoreLockedError):
        StoreLock(path).acquire()
    first.release()
    first.release()
    assert Path(path).read_bytes() == b"lock"


def test_two_stores_do_not_share_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    (tmp_path / "link").symlink_to(log)

    def store_of(root: str, folder: Path) -> MessageStore:
        return MessageStore(
            StoreConfig(
                root_dir=str(tmp_path / root),
                commit_log_dir=str(folder),
                mapped_file_size_commit_log=65536,
            )
        )

    with store_of("a", log):
        for folder in (log, tmp_path / "link"):
            with pytest.raises(StoreLockedError, match="in use by the store of another"):
                store_of("b", folder).start()
        assert not (tmp_path / "b").exists()
    assert {path.stat().st_size for path in log.iterdir()} == {65536}
    with store_of("a", log):
        pass


def test_the_error_for_an_impossible_lock_has_its_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot open the store's lock"):
        StoreLock(str(tmp_path / "file" / "lock")).acquire()
    assert os.listdir(tmp_path) == ["file"]


def test_a_lock_that_the_system_refuses_is_an_error_and_leaves_nothing_open(
    tmp_path: Path,
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    files = FaultyFileSystem(DISK, Failpoint("record_lock", str(tmp_path), errno.ENOLCK))
    with pytest.raises(StoreError, match="No locks available"):
        StoreLock(str(tmp_path / "lock"), files).acquire()
    files = FaultyFileSystem(DISK, Failpoint("lock", str(tmp_path), errno.ENOLCK))
    with pytest.raises(StoreError, match="No locks available"):
        FolderLock(str(tmp_path / "log"), files).acquire()
    assert len(os.listdir("/proc/self/fd")) <= before
