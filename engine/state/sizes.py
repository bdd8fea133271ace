"""The sizes of a store's files, which stay those of its first start."""

import logging
import os
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from congreve.base.settings import INT_MAX
from congreve.engine.config import StoreConfig
from congreve.engine.errors import StoreConfigError, StoreError, StoreFormatError
from congreve.engine.log.segment_files import has_segments
from congreve.engine.state.sealed import seal, unseal
from congreve.engine.state.state_file import DISK, FileSystem, StateFile

logger = logging.getLogger(__name__)

SIZES_FILE = "sizes.json"
_SMALL_SEGMENT = 32 << 20
_BATCH_GROWTH = 8  # the records of a batch of short messages take several times its bytes
_Size = Annotated[int, msgspec.Meta(ge=1, le=INT_MAX)]


class FileSizes(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Keys of broker.conf that give the size of files; the defaults are RocketMQ's."""

    mapped_file_size_commit_log: _Size = 1 << 30
    mapped_file_size_consume_queue: _Size = 6_000_000
    max_hash_slot_num: _Size = 5_000_000
    max_index_num: _Size = 20_000_000

    @classmethod
    def names(cls) -> Iterator[tuple[str, str]]:
        """Each field and its key of broker.conf."""
        return zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True)

    @classmethod
    def of(cls, config: StoreConfig) -> "FileSizes":
        """The sizes in the settings of a store."""
        return cls(**{field: getattr(config, field) for field in cls.__struct_fields__})

    @property
    def by_key(self) -> dict[str, int]:
        """Each size by its key of broker.conf."""
        return {key: getattr(self, field) for field, key in self.names()}

    @property
    def settings(self) -> dict[str, int]:
        """The keys of broker.conf that a RocketMQ broker, or a slave, needs for such files."""
        usual = FileSizes().by_key
        return {key: size for key, size in self.by_key.items() if size != usual[key]}


def small_sizes(max_message_size: int) -> FileSizes:
    """Files of a new store that take little space; a segment holds the largest batch."""
    segment = _SMALL_SEGMENT
    while segment < max_message_size * _BATCH_GROWTH:
        segment *= 2
    return FileSizes(
        mapped_file_size_commit_log=min(segment, FileSizes().mapped_file_size_commit_log),
        max_hash_slot_num=250_000,
        max_index_num=1_000_000,
    )


class SizesFile:
    """`ROOT/congreve/sizes.json`, sealed. A store gets it at its first start."""

    def __init__(self, own_dir: str, *, files: FileSystem = DISK, read_only: bool = False) -> None:
        self._file = StateFile(os.path.join(own_dir, SIZES_FILE), files=files, read_only=read_only)

    def load(self) -> FileSizes | None:
        """The sizes; None without a valid file. Raises StoreError."""
        return self._file.load(sizes_in)

    def check(self, config: StoreConfig) -> None:
        """Raises StoreFormatError if the store's files have other sizes than the settings."""
        known = self.load()
        if known is not None and (found := _contradictions(known, config)):
            raise StoreFormatError("; ".join(found.values()))

    def keep(self, config: StoreConfig) -> None:
        """Write the sizes of a store that has none, durably. Raises StoreError."""
        if self.load() is None:
            self._file.replace(seal(msgspec.json.encode(FileSizes.of(config))))


def kept_sizes(root: str | Path, files: FileSystem = DISK) -> FileSizes:
    """The sizes of a store's files; RocketMQ's if the store keeps none. Raises StoreError."""
    own_dir = StoreConfig(root_dir=str(root)).own_dir
    return SizesFile(own_dir, files=files, read_only=True).load() or FileSizes()


def adopt_sizes(
    config: StoreConfig,
    named: Container[str],
    new: FileSizes | None = None,
    files: FileSystem = DISK,
) -> None:
    """Give `config` the sizes of its store's files; `new` are those of a store that is not made.

    Keys in `named` keep their values. Raises StoreConfigError if the files have others, StoreError
    if the disk fails.
    """
    sizes = SizesFile(config.own_dir, files=files, read_only=True).load()
    if sizes is not None:
        for key, contradiction in _contradictions(sizes, config).items():
            if key in named:
                raise StoreConfigError(contradiction)
    elif not _is_made(config, files):
        sizes = new
    for field, key in FileSizes.names():
        if sizes is not None and key not in named:
            setattr(config, field, getattr(sizes, field))
    if config.max_message_size > config.mapped_file_size_commit_log:
        logger.warning(
            "maxMessageSize=%d: the segments of %s have %d bytes and hold no larger message",
            *(config.max_message_size, config.root_dir, config.mapped_file_size_commit_log),
        )


def _is_made(config: StoreConfig, files: FileSystem) -> bool:
    try:
        return has_segments(files, config.commit_log_dir)
    except OSError as error:
        raise StoreError(f"cannot list {config.commit_log_dir}: {error.strerror}") from error


def _contradictions(known: FileSizes, config: StoreConfig) -> dict[str, str]:
    now = FileSizes.of(config).by_key
    return {
        key: f"{key}={now[key]}: the files of {config.root_dir} were made with {key}={size}, and "
        "keep that size: write it, or leave it out"
        for key, size in known.by_key.items()
        if size != now[key]
    }


def sizes_in(text: str) -> FileSizes:
    """The sizes in the text of the file. Raises ValueError or msgspec's errors."""
    return msgspec.json.decode(unseal(text), type=FileSizes)
