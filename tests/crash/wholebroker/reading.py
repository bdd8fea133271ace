"""A broker's whole state, read over the wire."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Iterator

from harness.wire import GET_MAX_OFFSET, PULL_MESSAGE, Wire, pull_fields, record_bodies
from wholebroker import codes
from wholebroker.administration import NAMESPACE
from wholebroker.checker import Found, Stored
from wholebroker.history import SUCCESS, History
from wholebroker.messages import SHARED

from congreve.remoting.messages import fastjson

OWN = ("Shared", "Sent-", "Own-", "%RETRY%", "%DLQ%")
AT_ONCE = 32
INDEX_CATCHES_UP_S = 60


def read_all(broker: str, namesrv: str, history: History) -> Found:
    """Read the broker's and the name server's state of everything that clients changed."""
    found = read_broker(broker, history)
    with Wire(namesrv, timeout_s=30) as wire:
        answer = wire.call(codes.GET_KVLIST_BY_NAMESPACE, {"namespace": NAMESPACE})
        settings = fastjson.loads(answer.body)["table"] if answer.code == SUCCESS else {}
        found.values |= {("kv", NAMESPACE, key): value for key, value in settings.items()}
    return found


def read_broker(broker: str, history: History) -> Found:
    """The same without the name server."""
    found = Found()
    with Wire(broker, timeout_s=30) as wire:
        _read_state(wire, found)
        asked = {topic for topic, _ in history.copies}
        for key in list(found.values):
            topic = str(key[1])
            if key[0] == "topic" and (topic in asked or topic.startswith(OWN)):
                found.records[topic] = list(_records(wire, found, topic))
    found.sort()
    return found


def _read_state(wire: Wire, found: Found) -> None:
    topics = fastjson.loads(wire.call(codes.GET_ALL_TOPIC_CONFIG, {}).body)
    for name, topic in topics["topicConfigTable"].items():
        found.values["topic", name] = (
            topic["readQueueNums"],
            topic["writeQueueNums"],
            topic["perm"],
        )
    groups = fastjson.loads(wire.call(codes.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {}).body)
    for name, group in groups["subscriptionGroupTable"].items():
        found.values["group", name] = (
            int(group["consumeEnable"]),
            group["retryQueueNums"],
            group["retryMaxTimes"],
        )
    offsets = fastjson.loads(wire.call(codes.GET_ALL_CONSUMER_OFFSET, {}).body)
    for key, queues in offsets["offsetTable"].items():
        topic, _, group = key.partition("@")
        for queue_id, offset in queues.items():
            found.values["offset", topic, group, int(queue_id)] = offset
    for line in wire.call(codes.GET_BROKER_CONFIG, {}).body.decode().splitlines():
        key, _, value = line.partition("=")
        found.values["config", key] = value


def _records(wire: Wire, found: Found, topic: str) -> Iterator[Stored]:
    queues = found.values["topic", topic]
    assert isinstance(queues, tuple)
    for queue_id in range(max(queues[:2])):
        fields = {"topic": topic, "queueId": str(queue_id)}
        end = int(wire.call(GET_MAX_OFFSET, fields).fields["offset"])
        at = 0
        while at < end:
            answer = wire.call(PULL_MESSAGE, pull_fields(topic, queue_id, at, AT_ONCE))
            if answer.code != SUCCESS:
                found.faults.append(
                    f"{topic} queue {queue_id} ends at {end}, a pull at {at} gets {answer.code}"
                    f" {answer.remark}"
                )
                break
            yield from decode_records(answer.body)
            at = int(answer.fields["nextBeginOffset"])


def decode_records(body: bytes) -> Iterator[Stored]:
    """The records of a pull's answer (RocketMQ: MessageDecoder)."""
    at = 0
    for queue_offset, text in record_bodies(body):
        size, _, _, queue_id = struct.unpack_from(">IIII", body, at)
        physical_offset, sys_flag = struct.unpack_from(">QI", body, at + 28)
        stored_at = at + 56 + (12 if sys_flag & 0x10 else 0)
        (store_timestamp,) = struct.unpack_from(">Q", body, stored_at)
        yield Stored(queue_id, queue_offset, physical_offset, store_timestamp, text)
        at += size


def lookup_faults(broker: str, found: Found, chance: random.Random, count: int) -> list[str]:
    """Some messages by key and by id; the index may need a while to catch up with the log."""
    wrong = []
    there = [(number, s[0]) for (topic, number), s in found.by_number.items() if topic == SHARED]
    with Wire(broker, timeout_s=30) as wire:
        for number, stored in chance.sample(there, min(count, len(there))):
            fields = {"offset": str(stored.physical_offset)}
            answer = wire.call(codes.VIEW_MESSAGE_BY_ID, fields)
            if [body for _, body in record_bodies(answer.body)] != [stored.body]:
                wrong.append(f"message {number} is not viewed by its id: {answer.remark}")
            deadline = time.monotonic() + INDEX_CATCHES_UP_S
            while not _by_key(wire, number, stored):
                if time.monotonic() > deadline:
                    wrong.append(f"message {number} is not found by its key")
                    break
                time.sleep(0.05)
    return wrong


def _by_key(wire: Wire, number: int, stored: Stored) -> bool:
    fields = {
        "topic": SHARED,
        "key": f"k{number}",
        "maxNum": "32",
        "beginTimestamp": "0",
        "endTimestamp": str(1 << 60),
    }
    answer = wire.call(codes.QUERY_MESSAGE, fields)
    return answer.code == SUCCESS and stored in decode_records(answer.body)
