"""Copies a running store's files as kill -9 would leave them."""

import shutil
from pathlib import Path


def copy_running(store: str | Path, copy: Path) -> None:
    """Copy the store's folder. Files that are being prepared beside the log may be renamed
    during the copy."""
    shutil.copytree(store, copy, ignore=shutil.ignore_patterns("commitlog.prepared"))
