"""Copies a running store's files as kill -9 would leave them."""

import shutil
from contextlib import suppress
from pathlib import Path


def copy_running(store: str | Path, copy: Path) -> None:
    """Copy the store's folder. Files that are being prepared beside the log may be renamed
    during the copy, and those of removed queues may go."""
    ignored = shutil.ignore_patterns("commitlog.prepared")
    shutil.copytree(store, copy, ignore=ignored, copy_function=_copy_if_there)


def _copy_if_there(source: str, target: str) -> None:
    with suppress(FileNotFoundError):
        shutil.copy2(source, target)
