"""The journal of consumer offsets: kills, damage, and a journal that cannot be written."""

import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from congreve.broker.config import BrokerConfig
from congreve.broker.metadata.offset_file import OffsetFile
from congreve.broker.metadata.offsets import ConsumerOffsetManager
from congreve.engine.errors import StoreError


def offset_file(folder: Path) -> tuple[OffsetFile, ConsumerOffsetManager]:
    offsets = ConsumerOffsetManager(BrokerConfig())
    file = OffsetFile(str(folder / "consumerOffset.json"), str(folder / "o" / "journal"), offsets)
    file.load()
    return file, offsets


def acknowledge(file: OffsetFile, offsets: ConsumerOffsetManager, key: str, offset: int) -> None:
    offsets.commit(key, "T", 0, offset)
    offsets.acknowledge(key, "T", 0)
    file.append(offsets.take_acknowledged())


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["ack", "ack", "one-way", "save", "kill", "clone", "remove"]),
            st.sampled_from("ab"),
            st.integers(0, 9),
        ),
        max_size=30,
    )
)
def test_acknowledged_offsets_survive_any_kill(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, int]]
) -> None:
    folder = tmp_path_factory.mktemp("offsets")
    file, offsets = offset_file(folder)
    promised: dict[str, set[int]] = {}  # group -> the offsets that a start may find
    for step, group, offset in steps:
        if step == "ack":
            acknowledge(file, offsets, group, offset)
            promised[group] = {offset}
        elif step == "one-way":
            offsets.commit(group, "T", 0, offset)
            promised[group] = promised.get(group, {-1}) | {offset}
        elif step == "clone":
            offsets.clone("a", "b", "T")
            file.append(offsets.take_acknowledged())
            if offsets.query("a", "T", 0) >= 0:
                promised["b"] = {offsets.query("a", "T", 0)}
        elif step == "remove":
            offsets.remove_group(group)
            file.append(offsets.take_acknowledged())
            if promised.pop(group, None):
                promised[group] = {-1}
        elif step == "save":
            file.replace()
            promised = {g: {offsets.query(g, "T", 0)} for g in "ab"}
        else:
            file.close()
            file, offsets = offset_file(folder)
            for name, possible in promised.items():
                assert offsets.query(name, "T", 0) in possible
            promised = {g: {offsets.query(g, "T", 0)} for g in "ab"}
    file.close()


def test_a_damaged_offset_journal_is_logged_and_its_other_lines_are_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, offsets = offset_file(tmp_path)
    for number, group in enumerate("abc"):
        acknowledge(file, offsets, group, number)
    file.close()
    journal = tmp_path / "o" / "journal"
    first, second, third = journal.read_bytes().splitlines(keepends=True)
    foreign = b'[0,{"of":"another version"}]'
    flipped = bytes([second[0] ^ 1]) + second[1:]
    journal.write_bytes(
        b"%s%s%08x%s\n%storn" % (first, flipped, zlib.crc32(foreign), foreign, third)
    )
    file, offsets = offset_file(tmp_path)
    assert [offsets.query(group, "T", 0) for group in "abc"] == [0, -1, 2]
    assert caplog.messages == [f"{journal} is damaged: ignoring 2 of its lines"]
    file.close()


def test_a_torn_end_of_the_offset_journal_is_not_reported_as_damage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, offsets = offset_file(tmp_path)
    acknowledge(file, offsets, "a", 1)
    acknowledge(file, offsets, "a", 2)
    file.close()
    journal = tmp_path / "o" / "journal"
    journal.write_bytes(journal.read_bytes()[:-5])
    file, offsets = offset_file(tmp_path)
    assert offsets.query("a", "T", 0) == 1
    assert not caplog.messages
    file.close()


def test_a_journal_of_another_file_is_ignored(tmp_path: Path) -> None:
    """A Java broker has used the store since: the file that it wrote is newer."""
    file, offsets = offset_file(tmp_path)
    acknowledge(file, offsets, "G", 1)
    file.replace()
    acknowledge(file, offsets, "G", 2)
    file.close()
    (tmp_path / "consumerOffset.json").write_text('{"offsetTable":{"T@G":{0:9}}}')
    _, again = offset_file(tmp_path)
    assert again.query("G", "T", 0) == 9


@pytest.mark.parametrize("cut", [2, 5, 30])
def test_a_torn_journal_loses_only_unconfirmed_changes(tmp_path: Path, cut: int) -> None:
    file, offsets = offset_file(tmp_path)
    for offset in (1, 2, 3):
        acknowledge(file, offsets, "G", offset)
    file.close()
    journal = tmp_path / "o" / "journal"
    journal.write_bytes(journal.read_bytes()[:-cut])
    file, again = offset_file(tmp_path)
    assert again.query("G", "T", 0) == 2
    acknowledge(file, again, "G", 4)
    file.close()
    assert offset_file(tmp_path)[1].query("G", "T", 0) == 4


def test_offsets_are_written_to_the_whole_file_if_the_journal_cannot_be_written(
    tmp_path: Path,
) -> None:
    file, offsets = offset_file(tmp_path)
    (tmp_path / "o").write_text("no folder")
    offsets.commit("G", "T", 0, 5)
    offsets.acknowledge("G", "T", 0)
    with pytest.raises(StoreError, match="journal"):
        file.append(offsets.take_acknowledged())
    offsets.acknowledge("G", "T", 0)
    file.append(offsets.take_acknowledged())
    assert offset_file(tmp_path)[1].query("G", "T", 0) == 5


def test_the_write_after_a_failed_one_has_the_offsets_of_both(tmp_path: Path) -> None:
    """An earlier version skipped the second write as empty, and counted it as a success."""
    file, offsets = offset_file(tmp_path)
    acknowledge(file, offsets, "G", 1)
    file.close()
    journal = tmp_path / "o" / "journal"
    journal.unlink()
    journal.mkdir()
    with pytest.raises(StoreError):
        acknowledge(file, offsets, "G", 2)
    file.append(offsets.take_acknowledged())
    file.close()
    assert offset_file(tmp_path)[1].query("G", "T", 0) == 2
