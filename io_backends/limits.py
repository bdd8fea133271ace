"""Limits of the system that a store must not reach."""

from pathlib import Path


def max_map_count(path: str = "/proc/sys/vm/max_map_count") -> int | None:
    """How many mappings a process may have; None if the system does not say."""
    try:
        return int(Path(path).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
