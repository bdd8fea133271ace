"""Which folders a log may be kept in."""

import os
from pathlib import Path

import pytest

from congreve.io_backends.disk import check_usable, disk_of, used_share
from congreve.io_backends.errors import BackendError


def mounts(tmp_path: Path, *lines: str) -> str:
    table = tmp_path / "mountinfo"
    table.write_text("\n".join(["22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw", *lines]) + "\n")
    return str(table)


def test_a_usable_folder_reports_its_disk(tmp_path: Path) -> None:
    disk = check_usable(str(tmp_path), 1 << 20)
    assert disk.free >= 1 << 20
    assert disk.file_system != "unknown"
    assert str(tmp_path.resolve()).startswith(disk.mount)


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs"])
def test_a_network_folder_is_refused(tmp_path: Path, kind: str) -> None:
    here = os.path.realpath(tmp_path)
    table = mounts(tmp_path, f"30 22 0:40 / {here} rw shared:1 - {kind} server:/x rw")
    with pytest.raises(BackendError, match="a network file system"):
        check_usable(str(tmp_path), 1, mounts=table)


def test_the_longest_mount_point_wins_and_names_may_have_blanks(tmp_path: Path) -> None:
    inside = tmp_path / "a b"
    inside.mkdir()
    here = os.path.realpath(tmp_path)
    table = mounts(
        tmp_path,
        f"30 22 0:40 / {here} rw - xfs /dev/sdb rw",
        f"31 30 0:41 / {here}/a\\040b rw - nfs server:/x rw",
        f"32 22 0:42 / {here}/a rw - tmpfs tmpfs rw",
    )
    assert disk_of(str(inside), mounts=table).file_system == "nfs"
    assert disk_of(str(tmp_path), mounts=table).file_system == "xfs"


def test_the_error_for_a_full_disk_gives_the_missing_bytes(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=f"{1 << 40} MiB are needed"):
        check_usable(str(tmp_path), 1 << 60)


def test_a_read_only_file_system_is_refused() -> None:
    with pytest.raises(BackendError, match=r"read-only|has 0 MiB left"):
        check_usable("/proc/self", 1)


def test_the_used_share_of_a_missing_path_is_unknown() -> None:
    assert used_share("/nonexistent/folder") == -1.0
    assert 0 <= used_share("/") <= 1
