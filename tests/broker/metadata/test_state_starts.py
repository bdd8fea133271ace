"""Starts of a broker with missing or damaged state files."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from congreve.engine.errors import StoreError
from congreve.engine.state.state_file import StateFile
from congreve.remoting.messages import fastjson

from .state_tool import (
    CREATE,
    commit_fields,
    pull_fields,
    running,
    send_fields,
)

STATE = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "consumerFilter.json")


@pytest.mark.parametrize("damage", ["", "{", "[" * 500, "[]", '{"offsetTable":7}', "\0" * 64, "ÿ"])
async def test_no_damaged_state_file_stops_a_start_and_messages_stay_readable(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    async with running(tmp_path) as tool:
        assert (await tool.ask(10, send_fields("T"), b"kept")).code == 0
    names = [f"config/{name}" for name in (*STATE, "delayOffset.json")]
    own = ("queues.json", "index.json", "transactionChecks.json", "deletedTopics.json")
    for name in (*names, *(f"congreve/{name}" for name in own)):
        for path in (tmp_path / name, tmp_path / f"{name}.bak"):
            path.write_bytes(damage.encode("latin-1"))
    async with running(tmp_path) as tool:
        answer = await tool.ask(11, pull_fields("T"))
        assert answer.code == 0 and b"kept" in answer.body
        assert (await tool.ask(17, CREATE)).code == 0
    assert "are created again: T" in caplog.text


async def test_a_start_that_fails_for_want_of_descriptors_leaves_all_files_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as tool:
        await tool.ask(17, CREATE)
        assert (await tool.ask(15, commit_fields(42))).code == 0
        half = send_fields("T") | {"sysFlag": "4", "properties": "TRAN_MSG\x01true\x02PGROUP\x01P"}
        assert (await tool.ask(10, half, b"x")).code == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "config").iterdir()}
    load = StateFile.load

    def short(file: StateFile, parse: Callable[[str], bool]) -> bool | None:
        if file.path.endswith("subscriptionGroup.json"):
            raise StoreError(f"cannot read {file.path}: Too many open files")
        return load(file, parse)

    with monkeypatch.context() as patch:
        patch.setattr(StateFile, "load", short)
        with pytest.raises(StoreError, match="Too many"):
            async with running(tmp_path):
                pass
    assert {path.name: path.read_bytes() for path in (tmp_path / "config").iterdir()} == before


async def test_a_topic_whose_messages_are_in_the_log_comes_back_and_a_deleted_one_does_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as tool:
        for topic in ("Kept", "Deleted", "Again"):
            assert (await tool.ask(10, send_fields(topic), b"x")).code == 0
        for topic in ("Deleted", "Again"):
            assert (await tool.ask(215, {"topic": topic})).code == 0
        assert (await tool.ask(10, send_fields("Again"), b"y")).code == 0
    for name in ("config/topics.json", "congreve/queues.json"):  # the queues are rebuilt, all
        (tmp_path / name).unlink()
        (tmp_path / f"{name}.bak").unlink(missing_ok=True)
    async with running(tmp_path) as tool:
        assert {"Kept", "Deleted", "Again"} & tool.broker.managers.metadata.topics.table.keys() == {
            "Kept",
            "Again",
        }
        assert (await tool.ask(11, pull_fields("Kept"))).code == 0
    assert "topics.json is missing, but the store has messages" in caplog.text


async def test_a_flipped_digit_in_topics_json_affects_that_topic_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as tool:
        await tool.ask(17, CREATE)
        await tool.ask(17, {**CREATE, "topic": "U"})
    path = tmp_path / "config" / "topics.json"
    tree = fastjson.loads(path.read_text())
    tree["topicConfigTable"]["T"]["readQueueNums"] = 99_999
    path.write_text(json.dumps(tree))
    async with running(tmp_path) as tool:
        assert {"T", "U"} & tool.broker.managers.metadata.topics.table.keys() == {"U"}
    assert "ignoring topic 'T' of topics.json" in caplog.text


async def test_offsets_beyond_the_end_of_their_queue_begin_at_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as tool:
        assert (await tool.ask(10, send_fields("T"), b"x")).code == 0
        assert (await tool.ask(15, commit_fields(1))).code == 0
    path = tmp_path / "config/consumerOffset.json"
    path.write_text('{"offsetTable":{"T@G":{0:900},"T@H":{0:1},"Unknown@G":{0:900}}}')
    async with running(tmp_path) as tool:
        offsets = tool.broker.managers.metadata.offsets.table
        assert offsets["T@G"] == {0: 1} == offsets["T@H"]
        assert offsets["Unknown@G"] == {0: 900}
    assert "1 offsets of consumerOffset.json were beyond the end" in caplog.text
    assert "G on T queue 0" in caplog.text
