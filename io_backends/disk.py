"""The disk of a folder, and whether it can hold a commit log."""

import math
import os
from dataclasses import dataclass

from congreve.io_backends.errors import BackendError

#: With these, a server decides about durability, and a sync may not reach a disk.
NETWORK_FILE_SYSTEMS = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "coda", "gfs2", "glusterfs", "lustre", "ncpfs"}
    | {"nfs", "nfs4", "ocfs2", "smb3", "smbfs", "virtiofs"}
)
_NETWORK_FUSE = ("fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.rclone")


@dataclass(frozen=True, slots=True)
class Disk:
    """The mount that holds a folder; sizes in bytes."""

    mount: str
    file_system: str
    free: int
    read_only: bool
    device: str = ""
    """The source of the mount: /dev/sda1, or a name without a meaning for files in memory."""

    @property
    def network(self) -> bool:
        """Whether it is a network file system, whose server decides about durability."""
        return self.file_system in NETWORK_FILE_SYSTEMS or self.file_system.startswith(
            _NETWORK_FUSE
        )


def space_of(path: str) -> tuple[int, int]:
    """Bytes of the partition that this process has and could have, and those that are free of them.

    As for df, blocks that the file system keeps for others do not count. Raises OSError.
    """
    info = os.statvfs(path)
    used, free = info.f_blocks - info.f_bfree, info.f_bavail
    return (used + free) * info.f_frsize, free * info.f_frsize


def used_share(path: str) -> float:
    """Used share of the partition, rounded up to 0.01; -1.0 if it is unknown.

    RocketMQ: UtilAll.getDiskPartitionSpaceUsedPercent.
    """
    try:
        total, free = space_of(path)
    except OSError:
        return -1.0
    return math.ceil(100 * (total - free) / total) / 100 if total else -1.0


def disk_of(folder: str, *, mounts: str = "/proc/self/mountinfo") -> Disk:
    """The disk of `folder`. Raises BackendError if the folder does not exist."""
    try:
        space = os.statvfs(folder)
        with open(mounts, encoding="utf-8", errors="surrogateescape") as lines:
            mount, file_system, device = _mount_of(os.path.realpath(folder), lines.read())
    except OSError as error:
        raise BackendError(f"cannot stat {folder}: {error.strerror}") from error
    return Disk(
        mount,
        file_system,
        free=space.f_bavail * space.f_frsize,
        read_only=bool(space.f_flag & os.ST_RDONLY),
        device=device,
    )


def _mount_of(path: str, table: str) -> tuple[str, str, str]:
    """Mount point, file system and source of `path`: the longest prefix, the last of equal ones."""
    best = ("/", "unknown", "unknown")
    for line in table.splitlines():
        before, _, after = line.partition(" - ")
        point = before.split()[4].encode().decode("unicode_escape")
        if (path + "/").startswith(point.rstrip("/") + "/") and len(point) >= len(best[0]):
            file_system, source = after.split()[:2]
            best = (point, file_system, source)
    return best


def check_usable(folder: str, needed: int, *, mounts: str = "/proc/self/mountinfo") -> Disk:
    """The disk of `folder`.

    Raises BackendError if the folder cannot take `needed` bytes, or is on a network file system.
    """
    if not os.path.isdir(folder):
        what = "is not a folder" if os.path.exists(folder) else "does not exist"
        raise BackendError(f"{folder} {what}: give the folder of the store")
    disk = disk_of(folder, mounts=mounts)
    if disk.network:
        raise BackendError(
            f"{folder} is on {disk.file_system}, a network file system, where a sync may not "
            "reach a disk: use a local disk"
        )
    if disk.read_only or not os.access(folder, os.W_OK | os.X_OK):
        raise BackendError(f"{folder} is on a read-only file system: remount it writable")
    if disk.free < needed:
        raise BackendError(
            f"{folder} has {disk.free >> 20} MiB free, but {needed >> 20} MiB are needed: free some"
        )
    return disk
