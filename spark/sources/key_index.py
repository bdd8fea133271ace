"""Finds messages by key in a store's files: by the index files, and by reading what they do not
cover yet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from congreve.base.errors import CongreveError
from congreve.engine.errors import StoreFormatError
from congreve.engine.file_sizes import index_file_size
from congreve.engine.index.index_file import IndexFile
from congreve.engine.store_files.files import StoreFiles
from congreve.records.errors import RecordError
from congreve.records.message.message import Record
from congreve.records.message.properties import KEY_SEPARATOR, KEYS, UNIQ_KEY
from congreve.records.record import decode_record, index_hash
from congreve.spark.errors import OptionError

FOREVER = 2**62


class KeyIndex:
    """The index files of one store. Raises OptionError when their size differs from the
    configured one."""

    def __init__(self, files: StoreFiles, slots: int, capacity: int) -> None:
        self._files = files
        folder = files.root / "index"
        paths = (
            sorted(path for path in folder.iterdir() if path.name.isdecimal())
            if (folder.is_dir())
            else []
        )
        self._index = [_opened(path, slots, capacity) for path in paths]

    def covered(self) -> tuple[int, int]:
        """Physical offsets of the first and the last indexed message; (0, -1) when there is
        none."""
        filled = [index for index in self._index if index.count > 1]
        return (filled[0].begin_physical, filled[-1].end_physical) if filled else (0, -1)

    def find(self, topic: str, key: str) -> Iterator[Record]:
        """The indexed messages of a topic with the key."""
        wanted = index_hash(topic, key)
        places = {place for index in self._index for place in index.find(wanted, -FOREVER, FOREVER)}
        for place in sorted(places):
            record = self._record(place)
            if record is not None and record.topic == topic and carries(record, key):
                yield record

    def _record(self, physical_offset: int) -> Record | None:
        if physical_offset < self._files.log_begin:
            return None
        try:
            size = int.from_bytes(self._files.record(physical_offset, 4), "big", signed=True)
            return decode_record(self._files.record(physical_offset, size), verify_crc=False)
        except (RecordError, StoreFormatError):
            return None


def carries(record: Record, key: str) -> bool:
    """Whether the key is one of the message's KEYS, or its UNIQ_KEY."""
    properties = record.properties
    return key == properties.get(UNIQ_KEY) or key in properties.get(KEYS, "").split(KEY_SEPARATOR)


def _opened(path: Path, slots: int, capacity: int) -> IndexFile:
    try:
        return IndexFile(str(path), slots, capacity, writable=False)
    except CongreveError as error:
        size = index_file_size(slots, capacity)
        raise OptionError(
            f"options maxHashSlotNum {slots} and maxIndexNum {capacity} make index files of "
            f"{size} bytes: {error}"
        ) from error
