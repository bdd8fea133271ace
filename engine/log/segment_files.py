"""The files of a commit log's folder: segments and foreign files."""

import logging
import os
import re
from itertools import pairwise

from congreve.engine.errors import StoreFormatError
from congreve.io_backends.errors import BackendError
from congreve.io_backends.files.file_system import FileSystem

logger = logging.getLogger(__name__)

SEGMENT_NAME = re.compile(r"[0-9]{20}")


def segment_path(folder: str, base_offset: int) -> str:
    """Path of a segment: its name is the physical offset of its first byte, in 20 digits."""
    return os.path.join(folder, f"{base_offset:020d}")


def has_segments(files: FileSystem, folder: str) -> bool:
    """Whether the folder exists and has a segment. Raises OSError."""
    return files.is_folder(folder) and any(
        SEGMENT_NAME.fullmatch(entry.name) for entry in files.entries(folder)
    )


def find_segments(files: FileSystem, folder: str, segment_size: int) -> list[int]:
    """Base offsets of the segments in `folder`, ascending and without a gap.

    Other files stay as they are, with a warning (defect D27). A truncated last segment is extended
    to its size, so that recovery can read its remaining records. Raises StoreFormatError for any
    other wrong size and for a segment that is missing between others.
    """
    entries = []
    for entry in sorted(files.entries(folder), key=lambda entry: entry.name):
        if SEGMENT_NAME.fullmatch(entry.name) and entry.is_file():
            entries.append(entry)
        else:
            logger.warning("ignoring %s: it is not a segment of a commit log", entry.path)
    size = segment_size
    for entry in entries:
        size = files.status(entry.path).st_size
        # A single short file may belong to a store with other settings.
        cut_short = entry is entries[-1] and size < segment_size and (len(entries) > 1 or not size)
        if size != segment_size and not cut_short:
            raise StoreFormatError(
                f"{entry.path} has {size} bytes, but the settings say {segment_size}: use the "
                "mappedFileSizeCommitLog that the store was written with"
            )
    bases = [int(entry.name) for entry in entries]
    for before, base in pairwise(bases):
        if base != before + segment_size:
            raise StoreFormatError(
                f"{segment_path(folder, base)} does not follow {segment_path(folder, before)}: "
                "restore the segments between them, or move the later ones elsewhere"
            )
    if size != segment_size:
        logger.warning("%s was truncated to %d bytes: extended again", entries[-1].path, size)
        with files.open(entries[-1].path, os.O_RDWR) as file:
            files.truncate(file, segment_size)
    return bases


def remove_files(files: FileSystem, folder: str, paths: list[str]) -> None:
    """Unlink `paths`, one after the other, and sync the folder. Raises BackendError."""
    try:
        for path in paths:
            files.remove(path)
        files.sync_folder(folder)
    except OSError as error:
        raise BackendError(
            f"cannot remove segments of {folder}: {error}", error.errno or 0
        ) from error
