"""The file layer with the real file system, and its decorators."""

import errno
import os
from pathlib import Path

import pytest

from congreve.io_backends.errors import BackendError, SyncError
from congreve.io_backends.files.faulty import SLOW_S, Failpoint, FaultyFileSystem
from congreve.io_backends.files.file_system import DISK, FileSystem
from congreve.io_backends.files.recording import READS, Call, RecordingFileSystem


class EndedError(Exception):
    """Stands for the end of the process."""


def end() -> None:
    raise EndedError


def use_all(files: FileSystem, folder: Path) -> None:
    """Each method once."""
    path, second, mapped = (str(folder / "in" / name) for name in ("a", "b", "mapped"))
    files.make_folder(str(folder / "in"))
    with files.open(path, os.O_RDWR | os.O_CREAT) as file:
        files.write(file, b"hello world", 0)
        files.truncate(file, 5)
        files.set_mode(file, 0o600)
        files.sync(file)
        files.sync_data(file)
        assert files.read(file, 100, 1) == b"ello"
        found = files.next_data(file, 0)
        assert found is not None and found[0] == 0
        assert files.next_data(file, 1 << 20) is None
        files.lock(file)
    assert file.descriptor == -1
    assert files.read_all(path) == b"hello"
    assert files.status(path).st_mode & 0o777 == 0o600
    files.link(path, second)
    files.rename(second, path + "2")
    mapping = files.map(mapped, 8192, create=True)
    files.reserve(mapping, 0, 4096)
    memoryview(mapping)[:4] = b"data"
    files.sync_map(mapping)
    files.zero_map(mapping, 2)
    assert bytes(files.map(mapped, 8192, writable=False))[:4] == b"da\0\0"
    assert files.is_folder(str(folder / "in")) and not files.exists(second)
    assert files.real_path(f"{folder}/in/../in/a") == os.path.realpath(path)
    for entry in files.entries(str(folder / "in")):
        files.remove(entry.path)
    files.sync_folder(str(folder / "in"))
    files.sync_all(str(folder))
    files.remove_folder(str(folder / "in"))


def test_files_hold_the_written_bytes(tmp_path: Path) -> None:
    use_all(DISK, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_recording_has_each_call_below_its_root_in_order(tmp_path: Path) -> None:
    files = RecordingFileSystem(DISK, str(tmp_path / "in"))
    use_all(files, tmp_path)
    assert files.calls[:3] == [
        Call("make_folder", ".", 0),
        Call("create", "a", 0),
        Call("write", "a", 11),
    ]
    names = {call.name for call in files.calls}
    methods = {name for name in vars(FileSystem) if not name.startswith("_")}
    composed = {"read_all", "sync_all", "record_lock"}  # sync_all is of the folder above
    assert names == methods - composed | {"create", "create_map"}
    assert {call.name for call in files.changes} == names - READS


def test_each_call_can_fail(tmp_path: Path) -> None:
    record = RecordingFileSystem(DISK, str(tmp_path / "whole"))
    use_all(record, tmp_path / "whole")
    for number, call in enumerate(record.calls, 1):
        if call.name == "is_folder":
            continue  # it answers no
        folder = tmp_path / str(number)
        faulty = FaultyFileSystem(DISK, Failpoint("", str(folder), errno.EIO, nth=number))
        with pytest.raises((OSError, BackendError)) as failed:
            use_all(faulty, folder)
        assert failed.value.errno == errno.EIO  # type: ignore[attr-defined]
        assert faulty.reached


def test_a_failed_sync_of_mapped_bytes_is_a_sync_error(tmp_path: Path) -> None:
    faulty = FaultyFileSystem(DISK, Failpoint("sync", "/in/mapped", errno.ENOSPC))
    with pytest.raises(SyncError):
        use_all(faulty, tmp_path)


def test_a_failpoint_fires_as_often_as_configured(tmp_path: Path) -> None:
    faulty = FaultyFileSystem(DISK, Failpoint("create", "/x", errno.ENOSPC, nth=2, times=2))
    flags = os.O_WRONLY | os.O_CREAT
    refused = []
    for name in ("x1", "y", "x2", "x3", "x4"):
        try:
            faulty.open(str(tmp_path / name), flags).close()
        except OSError:
            refused.append(name)
    assert refused == ["x2", "x3"]


@pytest.mark.parametrize(("does", "left"), [("before", False), ("after", True)])
def test_a_process_ends_before_or_after_the_call(tmp_path: Path, does: str, left: bool) -> None:
    point = Failpoint("make_folder", "/in", does)  # type: ignore[arg-type]
    with pytest.raises(EndedError):
        use_all(FaultyFileSystem(DISK, point, end), tmp_path)
    assert (tmp_path / "in").exists() is left


def test_a_slow_call_is_delayed(tmp_path: Path) -> None:
    waits: list[float] = []
    point = Failpoint("write", "/in/a", "slow", times=100)
    use_all(FaultyFileSystem(DISK, point, sleep=waits.append), tmp_path)
    assert waits == [SLOW_S]


def test_a_short_write_writes_half(tmp_path: Path) -> None:
    files = FaultyFileSystem(DISK, Failpoint("write", "/a", "short"))
    with pytest.raises(OSError, match="No space left"):
        use_all(files, tmp_path)
    assert (tmp_path / "in" / "a").read_bytes() == b"hello"
