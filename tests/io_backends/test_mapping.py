"""Mapped files: wrong sizes, views that outlive the object, tails that must be zero."""

import gc
from pathlib import Path

import numpy as np
import pytest

from congreve.io_backends.errors import BackendError, SegmentSizeError
from congreve.io_backends.mapping import Mapping


def test_bytes_written_through_the_array_are_in_the_file(tmp_path: Path) -> None:
    mapping = Mapping(str(tmp_path / "a"), 8192, create=True)
    mapping.array(">i8")[3] = 0x0102030405060708
    mapping.flush()
    assert (tmp_path / "a").read_bytes()[24:32] == bytes(range(1, 9))


def test_a_view_keeps_the_file_mapped(tmp_path: Path) -> None:
    view = Mapping(str(tmp_path / "a"), 4096, create=True).array()
    gc.collect()
    view[4095] = 7
    assert isinstance(view, np.memmap)
    assert (tmp_path / "a").read_bytes()[4095] == 7


def test_a_read_only_mapping_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    view = Mapping(str(tmp_path / "a"), 3, writable=False).array()
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1


@pytest.mark.parametrize("size", [0, -1])
def test_a_size_that_is_not_positive_is_refused(tmp_path: Path, size: int) -> None:
    with pytest.raises(BackendError, match="positive"):
        Mapping(str(tmp_path / "a"), size, create=True)
    assert not (tmp_path / "a").exists()


def test_a_file_that_cannot_be_resized_is_removed(tmp_path: Path) -> None:
    with pytest.raises(BackendError):
        Mapping(str(tmp_path / "a"), 1 << 62, create=True)
    assert list(tmp_path.iterdir()) == []


def test_the_error_for_a_wrong_size_names_both_sizes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    with pytest.raises(SegmentSizeError, match=r"3 bytes.*4096"):
        Mapping(str(tmp_path / "a"), 4096)


@pytest.mark.parametrize("start", [0, 1, 4095, 4096, 4097, 9999, 10000])
def test_zero_from_clears_all_bytes_after_the_cut(tmp_path: Path, start: int) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * 10000)
    Mapping(str(path), 10000).zero_from(start)
    assert path.read_bytes() == b"x" * start + bytes(10000 - start)
