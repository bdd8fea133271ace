"""Messages by key out of a store's files: index files, and what they do not cover yet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from congreve.engine.errors import StoreFormatError
from congreve.engine.files import StoreFiles
from congreve.engine.format import INDEX_HEADER
from congreve.engine.indexfile import IndexFile
from congreve.errors import CongreveError
from congreve.records.errors import RecordError
from congreve.records.message import Record
from congreve.records.properties import KEY_SEPARATOR, KEYS, UNIQ_KEY
from congreve.records.record import decode_record, index_hash
from congreve.spark.errors import OptionError

FOREVER = 2**62


class KeyIndex:
    """The index files of one store; those of other sizes than its settings are an OptionError."""

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
        """Physical offsets of the first and the last message that is indexed; (0, -1): none."""
        filled = [index for index in self._index if index.count > 1]
        return (filled[0].begin_physical, filled[-1].end_physical) if filled else (0, -1)

    def find(self, topic: str, key: str) -> Iterator[Record]:
        """Messages of a topic that carry the key, by the index."""
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
        size = INDEX_HEADER.itemsize + 4 * slots + 20 * capacity
        raise OptionError(
            f"options maxHashSlotNum {slots} and maxIndexNum {capacity} make index files of "
            f"{size} bytes: {error}"
        ) from error
