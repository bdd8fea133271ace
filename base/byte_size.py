"""Sizes in bytes as text with a unit."""

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def readable_size(size: float) -> str:
    """A number of bytes with a unit and one decimal (RocketMQ: UtilAll.humanReadableByteCount)."""
    unit = 0
    while size >= 1024 and unit < len(UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.1f} {UNITS[unit]}"
