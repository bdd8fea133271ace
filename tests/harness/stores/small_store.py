"""Settings of stores with small files, which tests fill quickly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from congreve.engine.config import StoreConfig

SIZES = {
    "mapped_file_size_commit_log": 1 << 20,
    "mapped_file_size_consume_queue": 20 * 1_000,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
}


def small_store(root: Path, **settings: Any) -> StoreConfig:
    """ASYNC_FLUSH and SIZES, unless `settings` say something else."""
    chosen = {"flush_disk_type": "ASYNC_FLUSH", **SIZES, **settings}
    return StoreConfig(root_dir=str(root), **chosen)
