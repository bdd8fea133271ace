"""What a killed process noted is believed exactly as far as the log bears it out."""

from pathlib import Path

from congreve.engine.progress import Progress


def opened(path: Path, log_end: int, columns: int = 2) -> tuple[Progress, dict]:
    progress = Progress(str(path), rows=3, columns=columns)
    return progress, progress.open(log_end)


def test_notes_are_there_without_a_close(tmp_path: Path) -> None:
    first, rows = opened(tmp_path / "new" / "p", 0)
    assert rows == {}
    first.note(1, (-7, 1 << 62), log_end=100)
    first.note(2, (1, 2), log_end=90)
    assert opened(tmp_path / "new" / "p", 100)[1] == {1: (-7, 1 << 62), 2: (1, 2)}


def test_a_row_of_a_log_that_was_cut_is_not_believed(tmp_path: Path) -> None:
    first, _ = opened(tmp_path / "p", 0)
    first.note(0, (1, 2), log_end=100)
    first.note(1, (3, 4), log_end=101)
    first.close()
    assert opened(tmp_path / "p", 100)[1] == {0: (1, 2)}


def test_a_file_of_another_shape_or_of_garbage_is_begun_anew(tmp_path: Path) -> None:
    first, _ = opened(tmp_path / "p", 0)
    first.note(0, (1, 2), log_end=1)
    assert opened(tmp_path / "p", 100, columns=3)[1] == {}
    (tmp_path / "g").write_bytes(b"\xff" * 80)
    assert opened(tmp_path / "g", 100)[1] == {}


def test_rows_beyond_the_file_are_ignored(tmp_path: Path) -> None:
    first, _ = opened(tmp_path / "p", 0)
    first.note(3, (1, 2), log_end=1)
    assert opened(tmp_path / "p", 100)[1] == {}
