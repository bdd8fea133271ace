"""kill -9 right after an answer: acknowledged changes of topics, groups and offsets survive.

State files are written late here, so that an answer that does not wait for them is too early.
"""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import faulty_broker, servers
from harness.wire import (
    HEART_BEAT,
    PULL_MESSAGE,
    SEND_MESSAGE_V2,
    Wire,
    heartbeat,
    pull_fields,
    record_bodies,
    send_fields,
)

from congreve.io_backends.files.faulty import Failpoint

UPDATE_OFFSET, QUERY_OFFSET = 15, 14
CREATE_TOPIC, DELETE_TOPIC, ALL_TOPICS = 17, 215, 21
CREATE_GROUP, DELETE_GROUP, ALL_GROUPS = 200, 207, 201
TOPICS = 40  # of one round, each created by a send
QUEUES = 4  # of each topic: from the log alone it would come back with one
EVERY_WRITE = 1 << 30

SETTINGS = {
    # The log survives a killed process anyway; without SYNC_FLUSH answers are faster.
    "flushDiskType": "ASYNC_FLUSH",
    "ioBackend": "mmap",
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 200),
    "flushConsumerOffsetInterval": "600000",
}


def create_fields(topic: str) -> dict[str, str]:
    return {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": "3",
        "writeQueueNums": "3",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }


def offset_fields(group: str, topic: str, offset: int | None = None) -> dict[str, str]:
    fields = {"consumerGroup": group, "topic": topic, "queueId": "0"}
    return fields if offset is None else {**fields, "commitOffset": str(offset)}


def slow(broker: servers.BrokerServer, file: str) -> list[str]:
    """The command of a broker whose writes to files with this text in their path are slow."""
    failpoint = Failpoint("write", file, "slow", times=EVERY_WRITE)
    return faulty_broker.command(failpoint, broker.config, broker.namesrv)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[servers.BrokerServer]:
    """A broker that is not started, with a running name server."""
    namesrv = servers.namesrv("congreve", tmp_path / "namesrv")
    made = servers.broker("congreve", tmp_path / "broker", namesrv.address, settings=SETTINGS)
    namesrv.start()
    try:
        yield made
    finally:
        made.kill()
        namesrv.kill()


def names_of(wire: Wire, code: int, table: str) -> set[str]:
    return set(json.loads(wire.call(code, {}).body)[table])


@pytest.mark.crash
def test_a_topic_created_by_a_send_survives_a_kill_right_after_the_response(
    broker: servers.BrokerServer,
    kill_rounds: int,
    campaign: Callable[[str, int], None],
) -> None:
    broker.command = slow(broker, "topics.json")
    acknowledged: list[str] = []
    for number in range(max(2, kill_rounds // 25)):
        broker.start()
        with Wire(broker.address) as wire:
            asked = {
                wire.send(SEND_MESSAGE_V2, send_fields(topic, 0, {}), topic.encode()): topic
                for topic in (f"Made-{number}-{i}" for i in range(TOPICS))
            }
            for _ in range(random.Random(number).randrange(1, TOPICS)):
                answer = wire.receive()
                if answer.code == 0:
                    acknowledged.append(asked[answer.opaque])
            broker.kill()
    broker.start()
    with Wire(broker.address) as wire:
        topics = json.loads(wire.call(ALL_TOPICS, {}).body)["topicConfigTable"]
        for topic in acknowledged:
            assert topics[topic]["readQueueNums"] == QUEUES
            answer = wire.call(PULL_MESSAGE, pull_fields(topic, 0, 0, 32))
            assert answer.code == 0, f"{topic}: {answer.code} {answer.remark}"
            assert topic.encode() in [body for _, body in record_bodies(answer.body)]
    campaign("kill -9 after sends that made topics", len(acknowledged))


@pytest.mark.crash
def test_a_confirmed_change_survives_a_kill_right_after_the_response(
    broker: servers.BrokerServer,
    kill_rounds: int,
    campaign: Callable[[str, int], None],
) -> None:
    """Make each change, kill the broker after the answer, restart it, and query the change."""
    broker.command = slow(broker, ".j")  # each .json, and the .journal
    broker.start()
    for number in range(max(1, kill_rounds // 50)):
        topic, group = f"T{number}", f"G{number}"
        changes: list[tuple[int, dict[str, str], bytes]] = [
            (CREATE_TOPIC, create_fields(topic), b""),
            (CREATE_GROUP, {}, json.dumps({"groupName": group, "retryMaxTimes": 3}).encode()),
            (HEART_BEAT, {}, heartbeat(topic, f"Beat{number}")),
            (UPDATE_OFFSET, offset_fields(group, topic, 41), b""),
            (UPDATE_OFFSET, offset_fields(group, topic, 42), b""),
            (PULL_MESSAGE, pull_fields(topic, 0, 0, 1) | {"consumerGroup": f"P{number}"}, b""),
            (DELETE_TOPIC, {"topic": topic}, b""),
            (DELETE_GROUP, {"groupName": group, "cleanOffset": "true"}, b""),
            (DELETE_TOPIC, {"topic": f"%RETRY%Beat{number}"}, b""),  # without offsets
        ]
        for done, (code, fields, body) in enumerate(changes, 1):
            with Wire(broker.address) as wire:
                answer = wire.call(code, fields, body)
                assert answer.code in (0, 19), answer.remark
                broker.kill()
            broker.start()
            with Wire(broker.address) as wire:
                topics = names_of(wire, ALL_TOPICS, "topicConfigTable")
                groups = names_of(wire, ALL_GROUPS, "subscriptionGroupTable")
                offset = wire.call(QUERY_OFFSET, offset_fields(group, topic))
            assert (topic in topics) == (done < 7)
            assert (group in groups) == (2 <= done < 8)
            assert (f"%RETRY%Beat{number}" in topics) == (3 <= done < 9)
            assert (f"Beat{number}" in groups) == (done >= 3)
            assert (f"P{number}" in groups) == (done >= 6)
            if done in (4, 5, 6):
                wanted = "41" if done == 4 else "42"
                assert (offset.code, offset.fields.get("offset")) == (0, wanted)
            if done >= 7:
                assert offset.fields.get("offset") != "42"
        campaign("kill -9 after changes of topics, groups and offsets", len(changes))


@pytest.mark.crash
def test_a_kill_resets_connections_and_a_stop_closes_them(broker: servers.BrokerServer) -> None:
    """RocketMQ's client fails a request at once only if its connection is reset."""
    for end, error in ((broker.kill, ConnectionResetError), (broker.stop, ConnectionError)):
        broker.start()
        with Wire(broker.address) as wire:
            wire.call(HEART_BEAT, {}, heartbeat("t", "g"))  # nothing is unread when it ends
            end()
            with pytest.raises(ConnectionError) as raised:
                wire.receive()
            assert raised.type is error
