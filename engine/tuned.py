"""What `congreve tune` found out about a store's disk; ioBackend=auto goes by it."""

import os

import msgspec

from congreve.engine.config import IO_BACKENDS
from congreve.engine.errors import StoreConfigError
from congreve.engine.statefile import StateFile


class Tuned(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The choice, under the keys of broker.conf, and why."""

    io_backend: str
    flush_disk_type: str
    reason: str


def tuned_path(root: str) -> str:
    """The file under a store's root."""
    return os.path.join(root, "congreve", "tuned.json")


def load_tuned(root: str) -> Tuned | None:
    """None where nothing was tuned; StoreError for a file that cannot be used."""
    return StateFile(tuned_path(root)).load(_parse)


def _parse(text: str) -> Tuned:
    tuned = msgspec.json.decode(text.encode(), type=Tuned)
    if tuned.io_backend not in IO_BACKENDS or tuned.io_backend == "auto":
        raise StoreConfigError(f"ioBackend is {tuned.io_backend!r}; run `congreve tune` again")
    return tuned


def save_tuned(root: str, tuned: Tuned) -> None:
    """Replace the file; StoreError."""
    text = msgspec.json.format(msgspec.json.encode(tuned)).decode()
    StateFile(tuned_path(root)).replace(text + "\n")
