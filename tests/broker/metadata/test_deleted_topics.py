"""A deleted topic stays deleted, also if a kill interrupts the deletion."""

import asyncio
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.slowness import limit_s
from harness.wire import GET_MAX_OFFSET, SEND_MESSAGE_V2, Wire, send_fields

from congreve.broker.broker import Broker
from congreve.engine.config import StoreConfig
from congreve.engine.errors import StoreError
from congreve.engine.state.sealed import seal, unseal
from congreve.engine.store_files.verify import StoreExaminer
from congreve.records.message.message import Record
from congreve.remoting.messages.command import RemotingCommand

from ..tool import local_config

UPDATE_AND_CREATE_TOPIC, DELETE_TOPIC_IN_BROKER, CLEAN_UNUSED_TOPIC = 17, 215, 316
QUERY_CONSUMER_OFFSET, UPDATE_CONSUMER_OFFSET = 14, 15
TOPIC = "T"


class Caller:
    peer = ("127.0.0.1", 40_000)


def broker_on(root: Path) -> Broker:
    store = StoreConfig(
        root_dir=str(root),
        mapped_file_size_commit_log=1 << 20,
        mapped_file_size_consume_queue=80,
        max_hash_slot_num=1000,
        max_index_num=4000,
    )
    return Broker(local_config(store=store))


def create(wire: Wire, queues: int) -> int:
    fields = {
        "topic": TOPIC,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
    }
    return wire.call(UPDATE_AND_CREATE_TOPIC, fields).code


def deletions(root: Path) -> list[str]:
    """The topics that deletedTopics.json lists as deleted."""
    path = root / "congreve" / "deletedTopics.json"
    return list(json.loads(unseal(path.read_text()))["topics"]) if path.exists() else []


def test_a_deletion_is_on_disk_before_anything_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a kill in between would bring the topic back, with other queues."""
    known: list[list[str]] = []
    with broker_on(tmp_path) as broker, Wire(broker.address) as wire:
        assert create(wire, 3) == 0
        assert wire.call(SEND_MESSAGE_V2, send_fields(TOPIC, 0, {}), b"x").code == 0
        delete, forget = broker.store.try_remove_topic, broker.managers.metadata.topics.delete
        monkeypatch.setattr(
            broker.managers.metadata.topics,
            "delete",
            lambda t: (known.append(deletions(tmp_path)), forget(t)),
        )
        monkeypatch.setattr(
            *(broker.store, "try_remove_topic"),
            lambda t: (known.append(deletions(tmp_path)), delete(t))[1],
        )
        assert wire.call(DELETE_TOPIC_IN_BROKER, {"topic": TOPIC}).code == 0
    assert known == [[TOPIC], [TOPIC]]


@pytest.mark.parametrize("messages", [0, 1])
def test_offsets_of_an_interrupted_deletion_do_not_apply_to_a_new_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: int
) -> None:
    """Otherwise a group would begin after the first messages of the new topic."""
    offset = {"consumerGroup": "G", "topic": TOPIC, "queueId": "0"}
    files = ["config/consumerOffset.json", "congreve/deletedTopics.json"]
    killed: dict[str, bytes] = {}

    def kill(_: str) -> None:
        killed.update({name: (tmp_path / name).read_bytes() for name in files})

    with broker_on(tmp_path) as broker, Wire(broker.address) as wire:
        assert create(wire, 1) == 0
        for _ in range(messages):
            assert wire.call(SEND_MESSAGE_V2, send_fields(TOPIC, 0, {}), b"x").code == 0
        fields = {**offset, "commitOffset": "9360"}
        assert wire.call(UPDATE_CONSUMER_OFFSET, fields).code == 0
    with broker_on(tmp_path) as broker, Wire(broker.address) as wire:
        remove = broker.managers.metadata.offsets.remove_topic_steps
        monkeypatch.setattr(
            *(broker.managers.metadata.offsets, "remove_topic_steps"),
            lambda topic: (kill(topic), remove(topic))[1],
        )
        assert wire.call(DELETE_TOPIC_IN_BROKER, {"topic": TOPIC}).code == 0
    # topics.json has the deletion, consumerOffset.json does not.
    for name, text in killed.items():
        (tmp_path / name).write_bytes(text)
    (tmp_path / "congreve/consumerOffset.journal").unlink(missing_ok=True)
    with broker_on(tmp_path) as broker, Wire(broker.address) as wire:
        assert create(wire, 1) == 0
        assert wire.call(QUERY_CONSUMER_OFFSET, offset).fields.get("offset") != "9360"


def test_the_note_of_a_deleted_topic_without_messages_is_removed(tmp_path: Path) -> None:
    with broker_on(tmp_path) as broker, Wire(broker.address) as wire:
        for _ in range(3):
            assert wire.call(DELETE_TOPIC_IN_BROKER, {"topic": TOPIC}).code == 0
    assert deletions(tmp_path) == []


def test_recovered_messages_of_a_deleted_topic_are_not_in_a_new_one(
    tmp_path: Path,
) -> None:
    topics_file = tmp_path / "config" / "topics.json"
    with broker_on(tmp_path) as broker, Wire(broker.address) as wire:
        assert create(wire, 3) == 0
        assert wire.call(SEND_MESSAGE_V2, send_fields(TOPIC, 0, {}), b"x").code == 0
    # As after a kill in the middle: the files have the deletion, the queues are still there.
    tree = json.loads(topics_file.read_text())
    del tree["topicConfigTable"][TOPIC]
    topics_file.write_text(json.dumps(tree))
    write_deletions(tmp_path, b'{"topics":{"T":1099511627776}}')
    with broker_on(tmp_path) as broker, Wire(broker.address) as wire:
        assert TOPIC not in broker.managers.metadata.topics.table
        assert create(wire, 2) == 0
        end = wire.call(GET_MAX_OFFSET, {"topic": TOPIC, "queueId": "0"})
        assert end.fields["offset"] == "0"
    assert deletions(tmp_path) == []


def damage(path: Path) -> None:
    """Damage the file and its backup."""
    for file in (path, path.with_name(f"{path.name}.bak")):
        file.write_bytes(b'"x"')


def write_deletions(root: Path, text: bytes) -> None:
    (root / "congreve" / "deletedTopics.json").write_text(seal(text))


def test_rebuilt_queues_of_a_new_topic_hold_no_message_of_the_deleted_one(
    tmp_path: Path,
) -> None:
    """The log shows the deletion only for queues that also have messages of the new topic."""
    with broker_on(tmp_path) as broker, Wire(broker.address) as wire:
        assert create(wire, 2) == 0
        for queue_id in (0, 0, 1, 1):
            assert send(wire, queue_id) == 0
        assert wire.call(DELETE_TOPIC_IN_BROKER, {"topic": TOPIC}).code == 0
        assert create(wire, 2) == 0
        assert send(wire, 1) == 0
    for _ in range(2):
        damage(tmp_path / "congreve/queues.json")
        with broker_on(tmp_path) as broker, Wire(broker.address) as wire:
            assert ends(wire) == [0, 1]
    assert StoreExaminer(str(tmp_path)).verify().problems == []


@pytest.mark.parametrize("again", [False, True])
def test_a_cleaned_topic_does_not_return_when_queues_are_rebuilt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    known: list[list[str]] = []
    with broker_on(tmp_path) as broker, Wire(broker.address) as wire:
        assert create(wire, 2) == 0
        assert send(wire, 0) == 0
        broker.managers.metadata.topics.delete(TOPIC)
        remove = broker.store.try_remove_topic
        monkeypatch.setattr(
            *(broker.store, "try_remove_topic"),
            lambda t: (known.append(deletions(tmp_path)), remove(t))[1],
        )
        assert wire.call(CLEAN_UNUSED_TOPIC, {}).code == 0
        if again:
            assert create(wire, 2) == 0
            assert send(wire, 1) == 0
    assert known == [[TOPIC]], "a kill in between leaves no part of it"
    damage(tmp_path / "congreve/queues.json")
    with broker_on(tmp_path) as broker, Wire(broker.address) as wire:
        assert (TOPIC in broker.managers.metadata.topics.table) == again
        if again:
            assert ends(wire) == [0, 1]


@pytest.mark.parametrize(
    "known",
    [
        b'{"madeAgain":{"T":1099511627776}}',  # of a log that was longer
        b'{"topics":{"T":-1}}',  # a kill came before anything was deleted
        b'{"topics":{"T":1099511627776}}',
    ],
)
def test_the_note_of_a_deletion_hides_no_later_message(tmp_path: Path, known: bytes) -> None:
    with broker_on(tmp_path) as broker, Wire(broker.address) as wire:
        assert create(wire, 2) == 0
        assert send(wire, 0) == 0
    write_deletions(tmp_path, known)
    damage(tmp_path / "congreve/queues.json")
    with broker_on(tmp_path) as broker, Wire(broker.address) as wire:
        assert ends(wire) == [1, 0]


def test_a_changed_number_in_the_note_of_a_deletion_hides_no_message(tmp_path: Path) -> None:
    """A larger end would make messages of a recreated topic messages of the old one."""
    with broker_on(tmp_path) as broker, Wire(broker.address) as wire:
        assert create(wire, 2) == 0
        assert send(wire, 0) == 0
        assert wire.call(DELETE_TOPIC_IN_BROKER, {"topic": TOPIC}).code == 0
        assert create(wire, 2) == 0
        assert send(wire, 0) == 0
        log_end = broker.store.log.max_offset
    path = tmp_path / "congreve/deletedTopics.json"
    text, changes = re.subn(r'"T":\d+', f'"T":{log_end}', path.read_text())
    assert changes == 1
    path.write_text(text)
    with broker_on(tmp_path) as broker, Wire(broker.address) as wire:
        assert ends(wire) == [1, 0]


def send(wire: Wire, queue_id: int) -> int:
    return wire.call(SEND_MESSAGE_V2, send_fields(TOPIC, queue_id, {}), b"x").code


def ends(wire: Wire) -> list[int]:
    """The ends of both queues."""
    answers = [
        wire.call(GET_MAX_OFFSET, {"topic": TOPIC, "queueId": str(queue_id)})
        for queue_id in range(2)
    ]
    return [int(answer.fields["offset"]) for answer in answers]


def test_a_kill_at_any_step_of_a_deletion_leaves_the_whole_topic_or_no_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offset = {"consumerGroup": "G", "topic": TOPIC, "queueId": "0"}
    root = tmp_path / "living"
    killed: list[Path] = []

    def kill() -> None:
        killed.append(tmp_path / f"killed-{len(killed)}")
        shutil.copytree(root, killed[-1])

    def kill_before(owner: object, name: str) -> None:
        call: Callable[..., Any] = getattr(owner, name)

        def killing(*values: object) -> Any:
            kill()
            return call(*values)

        monkeypatch.setattr(owner, name, killing)

    with broker_on(root) as broker, Wire(broker.address) as wire:
        assert create(wire, 3) == 0
        for number in range(6):
            fields = send_fields(TOPIC, number % 3, {})
            assert wire.call(SEND_MESSAGE_V2, fields, b"%d" % number).code == 0
        assert wire.call(UPDATE_CONSUMER_OFFSET, {**offset, "commitOffset": "2"}).code == 0
        unlink = broker.store.queues.unlink_steps

        def unlinking() -> Iterator[None]:
            for step in unlink():
                yield step
                kill()

        kill_before(broker.managers.metadata.deleted_topics, "begin")
        kill_before(broker.managers.metadata.topics, "delete")
        kill_before(broker.store, "try_remove_topic")
        kill_before(broker.managers.metadata.offsets, "remove_topic_steps")
        kill_before(broker.store, "checkpoint")
        monkeypatch.setattr(broker.store.queues, "unlink_steps", unlinking)
        assert wire.call(DELETE_TOPIC_IN_BROKER, {"topic": TOPIC}).code == 0
        answered = len(killed)
    found = []
    for folder in killed:
        with broker_on(folder) as broker, Wire(broker.address) as wire:
            there = TOPIC in broker.managers.metadata.topics.table
            found.append(there)
            if not there:
                assert create(wire, 3) == 0
            for queue_id in range(3):
                end = wire.call(GET_MAX_OFFSET, {"topic": TOPIC, "queueId": str(queue_id)})
                assert end.fields["offset"] == ("2" if there else "0"), folder
            committed = wire.call(QUERY_CONSUMER_OFFSET, offset).fields.get("offset")
            assert (committed == "2") == there, folder
            for _ in range(1_000):
                left = list((folder / "congreve/removed").glob("*"))
                if not left:
                    break
                time.sleep(0.01)
            assert not left, folder
    assert found == sorted(found, reverse=True)
    assert found[0], "the first kills come before anything was done"
    assert not any(found[answered - 1 :])


def test_a_topic_is_not_created_while_it_is_being_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its first messages would be deleted with the old ones."""
    made: list[int] = []
    with broker_on(tmp_path) as broker, Wire(broker.address) as wire:
        assert create(wire, 3) == 0
        assert wire.call(SEND_MESSAGE_V2, send_fields(TOPIC, 0, {}), b"x").code == 0
        remove = broker.store.wait_for_files

        def meanwhile() -> None:
            with Wire(broker.address) as other:
                made.append(create(other, 3))
                made.append(other.call(SEND_MESSAGE_V2, send_fields(TOPIC, 0, {}), b"x").code)
            remove()

        tries = iter([False])
        try_remove = broker.store.try_remove_topic
        monkeypatch.setattr(
            *(broker.store, "try_remove_topic"), lambda t: next(tries, True) and try_remove(t)
        )
        monkeypatch.setattr(broker.store, "wait_for_files", meanwhile)
        assert wire.call(DELETE_TOPIC_IN_BROKER, {"topic": TOPIC}).code == 0
        assert made == [1, 1]
        assert create(wire, 3) == 0
        assert wire.call(SEND_MESSAGE_V2, send_fields(TOPIC, 0, {}), b"y").code == 0
        end = wire.call(GET_MAX_OFFSET, {"topic": TOPIC, "queueId": "0"})
        assert end.fields["offset"] == "1"


async def test_deleting_a_topic_of_thousands_of_queues_blocks_the_loop_for_less_than_5_ms(
    tmp_path: Path, callback_times: Any
) -> None:
    longest = []
    async with broker_on(tmp_path) as broker:
        delete = broker.ports.server.handlers[DELETE_TOPIC_IN_BROKER]
        for topic in ("A", "B"):
            for queue_id in range(400):
                broker.store.put(Record(topic=topic, queue_id=queue_id, body=b"x"))
                await asyncio.sleep(0)  # the test's own work must not block the loop either
            for group in range(10):
                for queue_id in range(400):
                    broker.managers.metadata.offsets.commit(f"G-{group}", topic, queue_id, 1)
            request = RemotingCommand(code=DELETE_TOPIC_IN_BROKER, ext_fields={"topic": topic})
            with callback_times.measured():
                callback_times.reset()
                answer = await asyncio.create_task(delete(request, Caller()))
                longest.append(callback_times.longest_s)
            assert answer.code == 0
            assert not (tmp_path / "consumequeue" / topic).exists()
            assert not broker.managers.metadata.offsets.groups_of(topic)
    assert min(longest) < limit_s(0.005), callback_times.place


def test_a_topic_is_not_created_again_before_a_checkpoint_without_its_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a start would find the old queues on disk, and mix both topics' messages."""

    def fails() -> None:
        raise StoreError("cannot write queues.json: No space left on device")

    with broker_on(tmp_path) as broker, Wire(broker.address) as wire:
        assert create(wire, 1) == 0
        for _ in range(9):
            assert wire.call(SEND_MESSAGE_V2, send_fields(TOPIC, 0, {}), b"old").code == 0
        broker.store.checkpoint()
        with monkeypatch.context() as patch:
            patch.setattr(broker.store, "checkpoint", fails)
            answer = wire.call(DELETE_TOPIC_IN_BROKER, {"topic": TOPIC})
            assert answer.code != 0
            assert "No space left" in answer.remark
            assert create(wire, 1) != 0
            assert wire.call(SEND_MESSAGE_V2, send_fields(TOPIC, 0, {}), b"new").code != 0
            assert "queues.json" in (broker.managers.trouble() or "")
        deadline = time.monotonic() + 30
        while create(wire, 1) != 0:  # until the checkpoint is retried
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert wire.call(SEND_MESSAGE_V2, send_fields(TOPIC, 0, {}), b"new").code == 0
        while deletions(tmp_path):  # after that nothing is written
            time.sleep(0.01)
        shutil.copytree(tmp_path, killed := tmp_path.with_name("killed"))
    with broker_on(killed) as broker, Wire(broker.address) as wire:
        assert wire.call(GET_MAX_OFFSET, {"topic": TOPIC, "queueId": "0"}).fields["offset"] == "1"
