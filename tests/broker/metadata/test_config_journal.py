"""The journals of topics and groups: kills, damage, another broker's file, a full disk."""

import asyncio
import json
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from congreve.base.clock import Clock
from congreve.broker.config import BrokerConfig
from congreve.broker.metadata.table_file import Entry, TableFile
from congreve.broker.metadata.topics import TopicConfigManager
from congreve.engine.errors import StoreError
from congreve.engine.state.state_file import StateFile
from congreve.remoting.messages.bodies import TopicConfig

from .state_tool import CREATE, GROUP, running


class Table:
    """A topic table with its file, as in a broker from its start to a kill."""

    def __init__(self, folder: Path) -> None:
        self.topics = TopicConfigManager(BrokerConfig(), Clock())
        self.file = TableFile(
            str(folder / "topics.json"),
            str(folder / "o" / "topics.journal"),
            self.topics,
            Entry[TopicConfig],
        )
        self.topics.file = self.file.changes
        self.found = self.file.load()

    async def make(self, topic: str, queues: int = 1) -> None:
        """Create or change a topic, and wait for the file as an answer does."""
        self.topics.update(TopicConfig(topic_name=topic, write_queue_nums=queues))
        await self.file.changes.saved()

    async def delete(self, topic: str) -> None:
        """Delete a topic."""
        self.topics.delete(topic)
        await self.file.changes.saved()

    async def fold(self) -> None:
        """Write topics.json if the journal has entries."""
        self.file.fold()
        await self.file.changes.saved()

    def own(self) -> dict[str, int]:
        """The queue counts of the topics with short names, which are not built in."""
        return {
            name: config.write_queue_nums
            for name, config in self.topics.table.items()
            if len(name) == 1
        }


STEP = st.tuples(
    st.sampled_from(["make", "make", "make", "delete", "fold", "kill"]),
    st.sampled_from("abc"),
    st.integers(1, 9),
)


@given(steps=st.lists(STEP, max_size=20))
def test_every_confirmed_change_of_a_topic_survives_any_kill(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, int]]
) -> None:
    folder = tmp_path_factory.mktemp("topics")

    async def live() -> None:
        table, wanted = Table(folder), dict[str, int]()
        for step, name, queues in steps:
            if step == "make":
                await table.make(name, queues)
                wanted[name] = queues
            elif step == "delete":
                await table.delete(name)
                wanted.pop(name, None)
            elif step == "fold":
                await table.fold()
            else:
                version = table.topics.data_version
                table.file.close()
                table = Table(folder)
                assert table.own() == wanted
                assert not table.found or table.topics.data_version == version
        table.file.close()

    asyncio.run(live())


async def killed_folder(folder: Path) -> Path:
    """A table that was killed with topics a, b and c; b and c are in the journal alone."""
    table = Table(folder)
    for queues, name in enumerate("abc", 1):
        await table.make(name, queues)
    table.file.close()
    return folder / "o" / "topics.journal"


async def test_many_changes_write_the_whole_file_only_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = 0
    replace = StateFile.replace

    def counted(file: StateFile, text: str) -> None:
        nonlocal written
        written += 1
        replace(file, text)

    monkeypatch.setattr(StateFile, "replace", counted)
    table = Table(tmp_path)
    for number in range(200):
        await table.make(f"T{number}")
    assert written == 1
    assert (tmp_path / "o" / "topics.journal").stat().st_size < 200 * 300
    await table.fold()
    assert written == 2
    assert not (tmp_path / "o" / "topics.journal").exists()
    await table.fold()
    assert written == 2
    table.file.close()


async def test_a_torn_journal_loses_only_unconfirmed_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = await killed_folder(tmp_path)
    journal.write_bytes(journal.read_bytes()[:-3])
    assert Table(tmp_path).own() == {"a": 1, "b": 2}
    assert not caplog.messages


async def test_a_damaged_line_is_logged_and_the_others_are_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = await killed_folder(tmp_path)
    first, second = journal.read_bytes().splitlines(keepends=True)
    foreign = b'[0,{"of":"another version"}]'
    flipped = bytes([first[20] ^ 1])
    journal.write_bytes(
        first[:20] + flipped + first[21:] + b"%08x%s\n" % (zlib.crc32(foreign), foreign) + second
    )
    assert Table(tmp_path).own() == {"a": 1, "c": 3}
    assert caplog.messages == [f"{journal} is damaged: ignoring 2 of its lines"]


async def test_the_file_is_used_alone_without_its_journal(tmp_path: Path) -> None:
    (await killed_folder(tmp_path)).unlink()
    assert Table(tmp_path).own() == {"a": 1}


async def test_a_journal_of_another_file_is_ignored(tmp_path: Path) -> None:
    """A Java broker has used the store since: the file that it wrote is newer."""
    await killed_folder(tmp_path)
    path = tmp_path / "topics.json"
    stored = json.loads(path.read_text())
    stored["topicConfigTable"]["d"] = {"topicName": "d", "writeQueueNums": 4}
    path.write_text(json.dumps(stored))
    assert Table(tmp_path).own() == {"a": 1, "d": 4}


async def test_a_journal_beside_a_damaged_file_is_used(tmp_path: Path) -> None:
    await killed_folder(tmp_path)
    (tmp_path / "topics.json").write_text("{")
    assert Table(tmp_path).own() == {"b": 2, "c": 3}


async def test_the_first_change_after_a_start_rewrites_the_file(tmp_path: Path) -> None:
    journal = await killed_folder(tmp_path)
    table = Table(tmp_path)
    await table.make("d")
    assert not journal.exists()
    assert {"a", "b", "c", "d"} <= json.loads((tmp_path / "topics.json").read_text())[
        "topicConfigTable"
    ].keys()
    table.file.close()


async def test_changes_are_written_to_the_whole_file_if_the_journal_cannot_be_written(
    tmp_path: Path,
) -> None:
    table = Table(tmp_path)
    await table.make("a")
    (tmp_path / "o").write_text("no folder")
    with pytest.raises(StoreError, match="journal"):
        await table.make("b")
    await table.make("c")
    assert Table(tmp_path).own() == {"a": 1, "b": 1, "c": 1}
    table.file.close()


async def test_changes_are_refused_and_not_lost_while_the_file_cannot_be_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(file: StateFile, text: str) -> None:
        raise StoreError("cannot write topics.json: no")

    table = Table(tmp_path)
    await table.make("a")
    await table.make("b")
    with monkeypatch.context() as full:
        full.setattr(StateFile, "replace", refuse)
        with pytest.raises(StoreError, match="no"):
            await table.fold()
        with pytest.raises(StoreError, match="no"):
            await table.make("c")
    assert Table(tmp_path).own() == {"a": 1, "b": 1}
    await table.file.changes.finish()
    assert Table(tmp_path).own() == {"a": 1, "b": 1, "c": 1}
    table.file.close()


async def test_a_clean_stop_leaves_no_journal_and_whole_files(tmp_path: Path) -> None:
    async with running(tmp_path) as tool:
        for number in range(3):
            assert (await tool.ask(17, {**CREATE, "topic": f"N{number}"})).code == 0
            group = GROUP.replace(b'"G"', b'"G%d"' % number)
            assert (await tool.ask(200, {}, group)).code == 0
    assert not list((tmp_path / "congreve").glob("*.journal"))
    topics = json.loads((tmp_path / "config/topics.json").read_text())["topicConfigTable"]
    groups = json.loads((tmp_path / "config/subscriptionGroup.json").read_text())
    assert {"N0", "N1", "N2"} <= topics.keys()
    assert {"G0", "G1", "G2"} <= groups["subscriptionGroupTable"].keys()
