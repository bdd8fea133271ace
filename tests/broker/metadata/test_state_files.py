"""An acknowledged change is on disk before its answer is sent; a change that cannot be written is
refused, kept in memory, written later, and survives clean stops."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from congreve.broker.metadata.state_writer import Changes
from congreve.engine.errors import StoreError
from congreve.remoting.messages import fastjson

from .state_tool import (
    CREATE,
    GROUP,
    before_writes,
    commit_fields,
    delayed_writes,
    heartbeat,
    pull_fields,
    running,
    send_fields,
)

TOPICS = 60

PROMISES: dict[str, tuple[str, int, dict[str, str], bytes]] = {
    "a send that makes a topic": ("topics.json", 10, send_fields("New"), b"x"),
    "a topic by an administrator": ("topics.json", 17, {**CREATE, "topic": "New"}, b""),
    "more queues": ("topics.json", 17, {**CREATE, "readQueueNums": "9"}, b""),
    "a topic's end": ("topics.json", 215, {"topic": "T"}, b""),
    "a group by an administrator": ("subscriptionGroup.json", 200, {}, GROUP),
    "a group's end": ("subscriptionGroup.json", 207, {"groupName": "TOOLS_CONSUMER"}, b""),
    "a pull that makes a group": ("subscriptionGroup.json", 11, pull_fields("T", "New"), b""),
    "a heartbeat's group": ("subscriptionGroup.json", 34, {}, heartbeat("New")),
    "a heartbeat's retry topic": ("topics.json", 34, {}, heartbeat("New")),
}


@pytest.mark.parametrize("what", list(PROMISES))
async def test_no_response_confirms_a_change_that_is_only_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    name, code, fields, body = PROMISES[what]
    async with running(tmp_path) as tool:
        assert (await tool.ask(17, CREATE)).code == 0
        with delayed_writes(monkeypatch, name) as free:
            asked = asyncio.create_task(tool.ask(code, fields, body))
            done, _ = await asyncio.wait([asked], timeout=0.2)
            assert not done, f"answered before {name} was written"
            free.set()
            assert (await asked).code in (0, 19)


async def test_the_second_send_to_a_new_topic_waits_for_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as tool:
        with delayed_writes(monkeypatch, "topics.json") as free:
            asked = [
                asyncio.create_task(tool.ask(10, send_fields("New"), b"%d" % number))
                for number in range(20)
            ]
            done, _ = await asyncio.wait(asked, timeout=0.2)
            assert not done
            free.set()
            answers = await asyncio.gather(*asked)
        assert [answer.ext_fields["queueOffset"] for answer in answers] == [
            str(number) for number in range(20)
        ]


async def test_a_confirmed_offset_is_on_disk_and_a_one_way_offset_soon_after(
    tmp_path: Path,
) -> None:
    journal = tmp_path / "congreve" / "consumerOffset.journal"
    async with running(tmp_path, flush_consumer_offset_interval=60_000) as tool:
        await tool.ask(17, CREATE)
        assert (await tool.ask(15, commit_fields(42))).code == 0
        assert b'"T@G":{"0":42}' in journal.read_bytes().replace(b'"T@G",', b'"T@G":')
        await tool.ask(314, {"srcGroup": "G", "destGroup": "H", "topic": "T", "offline": "true"})
        assert b'"T@H"' in journal.read_bytes()
    assert not journal.exists()
    stored = fastjson.loads((tmp_path / "config" / "consumerOffset.json").read_text())
    assert stored == {"offsetTable": {"T@G": {"0": 42}, "T@H": {"0": 42}}}


@pytest.mark.parametrize("what", list(PROMISES))
async def test_a_change_is_refused_on_a_full_disk_and_written_when_space_is_free(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    what: str,
) -> None:
    name, code, fields, body = PROMISES[what]
    full = True

    def fail_when_full(path: str) -> None:
        if full and path.endswith(name):
            raise StoreError(f"cannot write {path}: No space left on device")

    async with running(tmp_path) as tool:
        assert (await tool.ask(17, CREATE)).code == 0
        before_writes(monkeypatch, fail_when_full)
        for _ in range(3):
            answer = await tool.ask(code, fields, body)
            assert answer.code not in (0, 19)
            assert name in (answer.remark or "") and "No space left" in (answer.remark or "")
            if "end" in what:
                break
        info = (await tool.ask(28)).body.decode()
        assert "stateFilesWritable" in info and "No space left" in info
        full = False
    logged = [r for r in caplog.records if r.levelno >= logging.ERROR and name in r.getMessage()]
    assert len(logged) == 1
    async with running(tmp_path) as tool:
        topics, groups = (
            tool.broker.managers.metadata.topics.table,
            tool.broker.managers.metadata.groups.table,
        )
        assert ("T" in topics) == (code != 215)
        assert ("New" in topics) == (fields.get("topic") == "New" or fields.get("b") == "New")
        assert ("G" in groups) == (code == 200)
        assert ("New" in groups) == (code in (11, 34))


async def test_failed_writes_of_changes_are_repeated_automatically(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("congreve.broker.metadata.state_writer.RETRY_FIRST_S", 0.01)
    fails = 3
    written: list[int] = []

    def write(number: int) -> None:
        nonlocal fails
        fails -= 1
        if fails >= 0:
            raise StoreError("no")
        written.append(number)

    heard: list[int] = []
    changes = Changes("f", lambda: 7, write, heard.append)
    changes.changed()
    with pytest.raises(StoreError):
        await changes.saved()
    assert changes.trouble == "no"
    async with asyncio.timeout(60):
        while not heard:
            await asyncio.sleep(0.01)
    assert (written, heard, changes.trouble) == ([7], [1], None)


async def test_waiters_for_one_file_resume_in_order() -> None:
    order: list[int] = []
    changes = Changes("f", lambda: None, lambda _: None, lambda number: order.append(-number))

    async def one(number: int) -> None:
        await changes.write()
        order.append(number)

    await asyncio.gather(*(one(number) for number in range(50)))
    await asyncio.sleep(0)
    assert [number for number in order if number >= 0] == list(range(50))
    assert order[-1] == -50


async def test_a_clean_stop_saves_all_changes_after_a_full_disk_has_free_space(
    small_disk: Callable[[int], Path], caplog: pytest.LogCaptureFixture
) -> None:
    disk = small_disk(8 << 20)
    async with running(disk / "store") as tool:
        assert (await tool.ask(17, CREATE)).code == 0
        ballast = disk / "ballast"
        with ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass
        for number in range(TOPICS):  # the first ones fit into the last block of the journal
            answer = await tool.ask(17, {**CREATE, "topic": f"N{number}"})
            if answer.code != 0:
                assert answer.code == 1 and "No space left" in (answer.remark or "")
        assert answer.code == 1
        for number in range(30):
            refused = await tool.ask(15, commit_fields(number))
            assert refused.code == 1 and "No space left" in (refused.remark or "")
        assert (await tool.ask(200, {}, GROUP)).code == 1
        ballast.unlink()
    lines = [r for r in caplog.records if "No space left" in r.getMessage()]
    assert len([r for r in lines if r.levelno >= logging.WARNING]) < 12
    async with running(disk / "store") as tool:
        managers = tool.broker.managers
        assert {f"N{number}" for number in range(TOPICS)} <= managers.metadata.topics.table.keys()
        assert "G" in managers.metadata.groups.table
        assert managers.metadata.offsets.query("G", "T", 0) == 29
