"""The result of `congreve tune` for a store's disk, which ioBackend=auto follows."""

import os
import platform

import msgspec

from congreve.engine.config import IO_BACKENDS
from congreve.engine.errors import StoreConfigError
from congreve.engine.state.state_file import DISK, FileSystem, StateFile
from congreve.io_backends.disk import disk_of

SYNC, ASYNC = "SYNC_FLUSH", "ASYNC_FLUSH"


class Choice(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A backend, and the reason for it."""

    io_backend: str
    reason: str


class Machine(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a measurement depends on: the kernel, and the disk of the folder."""

    kernel: str
    device: str
    mount: str
    file_system: str

    def differences(self, other: "Machine") -> list[str]:
        """A text for each field in which `other` differs."""
        return [
            f"the {name.replace('_', ' ')} was {before} and is {now}"
            for name in self.__struct_fields__
            if (before := getattr(self, name)) != (now := getattr(other, name))
        ]


class MeasuredStep(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Groups of one size through one backend: medians of the rounds, and the lowest and highest.

    `policy` is a flushDiskType; `in_flight` is 0 with ASYNC_FLUSH.
    """

    backend: str
    policy: str
    group_bytes: int
    in_flight: int
    p50_us: float
    p50_us_range: tuple[float, float]
    p99_us: float
    bytes_per_s: float
    bytes_per_s_range: tuple[float, float]


class Tuned(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The recommendation with the keys of broker.conf, its reason, and the choice for ASYNC_FLUSH.

    A file of an earlier version has no choice for ASYNC_FLUSH (it measured for SYNC_FLUSH alone),
    no machine and no measured steps.
    """

    io_backend: str
    flush_disk_type: str
    reason: str
    async_flush: Choice | None = None
    rounds: int = 1
    machine: Machine | None = None
    measured: tuple[MeasuredStep, ...] = ()

    def choice(self, flush_disk_type: str) -> Choice | None:
        """The choice for this flush policy; None without one."""
        if flush_disk_type == self.flush_disk_type:
            return Choice(io_backend=self.io_backend, reason=self.reason)
        return self.async_flush if flush_disk_type == ASYNC else None


def machine_of(folder: str) -> Machine:
    """This machine, with the disk of `folder`. Raises BackendError if the folder does not exist."""
    disk = disk_of(folder)
    return Machine(
        kernel=platform.release(),
        device=disk.device,
        mount=disk.mount,
        file_system=disk.file_system,
    )


def tuned_path(root: str) -> str:
    """The file under a store's root."""
    return os.path.join(root, "congreve", "tuned.json")


def load_tuned(root: str, files: FileSystem = DISK) -> Tuned | None:
    """The saved result; None if it is missing or damaged. Raises StoreError."""
    return StateFile(tuned_path(root), files=files).load(_parse)


def _parse(text: str) -> Tuned:
    tuned = msgspec.json.decode(text.encode(), type=Tuned)
    for choice in (tuned.choice(SYNC), tuned.choice(ASYNC)):
        if choice is not None and (
            choice.io_backend not in IO_BACKENDS or choice.io_backend == "auto"
        ):
            raise StoreConfigError(f"ioBackend is {choice.io_backend!r}; run `congreve tune` again")
    return tuned


def save_tuned(root: str, tuned: Tuned) -> None:
    """Replace the file. Raises StoreError."""
    text = msgspec.json.format(msgspec.json.encode(tuned)).decode()
    StateFile(tuned_path(root)).replace(text + "\n")
