"""A consumer gets the same fields as from 4.9.4, for every kind of message.

The tests send the same requests to a broker of each kind. The comparison leaves out ids, times and
addresses, or replaces them by placeholders.
"""

from __future__ import annotations

import json
import struct
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from harness import servers
from harness.wire import (
    CHECK_TRANSACTION_STATE,
    END_TRANSACTION,
    HEART_BEAT,
    PULL_MESSAGE,
    SEND_MESSAGE_V2,
    Wire,
    pull_fields,
    record_fields,
    send_fields,
)

SEND_BACK = 36
QUERY_CONSUME_QUEUE = 321
SEND_REPLY_MESSAGE_V2 = 325
PUSH_REPLY_MESSAGE_TO_CLIENT = 326
GROUP = "fields-group"
SETTINGS = {
    "messageDelayLevel": "1s 1s 1s 1s 1s",
    "transactionTimeOut": "500",
    "transactionCheckInterval": "1000",
}
#: Fields whose values belong to one broker; a placeholder replaces them in both answers.
OWN = frozenset(
    (
        *("physicalOffset", "queueOffset", "size", "bornHost", "storeHost"),
        *("bornTimestamp", "storeTimestamp"),
    )
)
OWN_PROPERTIES = frozenset(("ORIGIN_MESSAGE_ID", "PUSH_REPLY_TIME", "ARRIVE_TIME"))
SENT = {"KEYS": "a b", "TAGS": "TagA", "UNIQ_KEY": "ID", "WAIT": "true", "mine": "grösse"}

Fields = dict[str, Any]
Play = Callable[["BrokerUnderTest"], list[Fields]]


class BrokerUnderTest:
    """One broker, one connection to it, one topic."""

    def __init__(self, broker: servers.BrokerServer) -> None:
        self.wire = Wire(broker.address)
        self.topic = f"fields-{uuid.uuid4().hex[:8]}"
        self.group = f"{GROUP}-{uuid.uuid4().hex[:8]}"

    def send(self, properties: dict[str, str], *, topic: str = "", **changed: str) -> Fields:
        """The answer's fields; `changed` by the short names of SEND_MESSAGE_V2."""
        fields = send_fields(topic or self.topic, 1, properties) | {"h": "7"} | changed
        answer = self.wire.call(SEND_MESSAGE_V2, fields, b"body")
        assert answer.code == 0, answer
        return answer.fields

    def pulled(self, wanted: int = 1, *, topic: str = "", queue_id: int = 1) -> list[Fields]:
        """`wanted` messages of a queue, with the tags codes of their entries."""
        deadline = time.monotonic() + 60
        while True:
            fields = pull_fields(topic or self.topic, queue_id, 0, 32)
            answer = self.wire.call(PULL_MESSAGE, fields)
            found = record_fields(answer.body)
            if len(found) >= wanted:
                break
            assert time.monotonic() < deadline, f"{len(found)} of {wanted} came: {answer}"
            time.sleep(0.05)
        for one in found:
            one["tagsCode"] = self.tags_code(topic or self.topic, queue_id, one["queueOffset"])
        return found

    def tags_code(self, topic: str, queue_id: int, offset: int) -> str:
        fields = {
            "topic": topic,
            "queueId": str(queue_id),
            "index": str(offset),
            "count": "1",
            "consumerGroup": self.group,
        }
        text = self.wire.call(QUERY_CONSUME_QUEUE, fields).body.decode()
        return text.partition('"tagsCode":')[2].partition("}")[0].partition(",")[0].strip()

    def send_back(self, one: Fields, **changed: str) -> None:
        fields = {
            "offset": str(one["physicalOffset"]),
            "group": self.group,
            "delayLevel": "0",
            "originMsgId": "ID",
            "originTopic": self.topic,
            "unitMode": "false",
            "maxReconsumeTimes": "2",
        }
        answer = self.wire.call(SEND_BACK, fields | changed)
        assert answer.code == 0, answer

    def prepare(self, flag: int = 7, **properties: str) -> Fields:
        """A half message, as END_TRANSACTION names it."""
        half = {**SENT, "TRAN_MSG": "true", "PGROUP": self.group, **properties}
        # The broker does not check half messages that are older than three days.
        answer = self.send(half, f="4", h=str(flag), g=str(time.time_ns() // 1_000_000))
        return {
            "producerGroup": self.group,
            "tranStateTableOffset": answer["queueOffset"],
            "commitLogOffset": str(int(answer["msgId"][-16:], 16)),
            "commitOrRollback": "8",
            "fromTransactionCheck": "false",
            "msgId": "ID",
            "transactionId": "ID",
        }

    def commit(self, end: Fields) -> None:
        answer = self.wire.call(END_TRANSACTION, end)
        assert answer.code == 0, answer

    def join(self) -> None:
        """Register as a producer, which gets checks of transactions and replies."""
        groups = [{"groupName": self.group}]
        client = {"clientID": self.group, "consumerDataSet": [], "producerDataSet": groups}
        assert self.wire.call(HEART_BEAT, {}, json.dumps(client).encode()).code == 0

    def asked(self, code: int) -> Any:
        """The next request of this code that the broker sends to us."""
        while (frame := self.wire.receive()).code != code or frame.flag & 1:
            pass
        return frame


def plain(stage: BrokerUnderTest) -> list[Fields]:
    stage.send(SENT)
    stage.send({})
    stage.send({**SENT, "WAIT": "false"}, j="3")
    stage.send({"DELAY": "0", "PGROUP": "p", "REAL_TOPIC": "t", "TRAN_MSG": "no"})
    stage.send({"DELAY": "-1"})
    return stage.pulled(5)


def batch(stage: BrokerUnderTest) -> list[Fields]:
    body = b""
    for number, properties in enumerate(({"WAIT": "true", "TAGS": "TagA"}, {"KEYS": "k"}, {})):
        text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()
        member = struct.pack(">IIII", 0, 0, number, 4) + b"mine" + struct.pack(">H", len(text))
        member += text
        body += struct.pack(">I", len(member) + 4) + member
    fields = send_fields(stage.topic, 1, {"WAIT": "true"}) | {"m": "true"}
    assert stage.wire.call(SEND_MESSAGE_V2, fields, body).code == 0
    return stage.pulled(3)


def delayed(stage: BrokerUnderTest) -> list[Fields]:
    stage.send({**SENT, "DELAY": "1"})
    stage.pulled(1)
    stage.send({"DELAY": "99"}, j="2")
    stage.pulled(2)
    stage.send({"DELAY": "2", "WAIT": "false", "REAL_TOPIC": "elsewhere", "REAL_QID": "3"})
    return stage.pulled(3)


def sent_on(stage: BrokerUnderTest) -> list[Fields]:
    stage.send({**SENT, "DELAY": "1"})
    (first,) = stage.pulled(1)
    stage.send(first["properties"])
    return stage.pulled(2)


def retried(stage: BrokerUnderTest) -> list[Fields]:
    return _retries(stage, SENT)


def retried_after_a_delay(stage: BrokerUnderTest) -> list[Fields]:
    return _retries(stage, {**SENT, "DELAY": "2"})


def _retries(stage: BrokerUnderTest, properties: dict[str, str]) -> list[Fields]:
    stage.send(properties)
    return _until_dead(stage, stage.pulled(1)[0])


def _until_dead(stage: BrokerUnderTest, one: Fields) -> list[Fields]:
    found = []
    for attempt in range(2):
        stage.send_back(one)
        one = stage.pulled(attempt + 1, topic=f"%RETRY%{stage.group}", queue_id=0)[attempt]
        found.append(one)
    stage.send_back(one)
    return found + stage.pulled(1, topic=f"%DLQ%{stage.group}", queue_id=0)


def dead_at_once(stage: BrokerUnderTest) -> list[Fields]:
    stage.send({**SENT, "DELAY": "3"})
    stage.send_back(stage.pulled(1)[0], delayLevel="-1")
    return stage.pulled(1, topic=f"%DLQ%{stage.group}", queue_id=0)


def sent_to_the_retry_topic(stage: BrokerUnderTest) -> list[Fields]:
    """Send a message to the retry topic, as a Java client does after a failed send-back."""
    stage.send(SENT)
    stage.send_back(stage.pulled(1)[0])
    topic = f"%RETRY%{stage.group}"
    stage.pulled(1, topic=topic, queue_id=0)
    again = {**SENT, "RETRY_TOPIC": stage.topic, "ORIGIN_MESSAGE_ID": "ID", "DELAY": "3"}
    stage.send(again, topic=topic, e="0", j="1", l="2")
    found = stage.pulled(2, topic=topic, queue_id=0)
    del again["DELAY"]  # the reference makes a dead letter wait for its level first
    stage.send(again, topic=topic, e="0", j="2", l="2")
    return found + stage.pulled(1, topic=f"%DLQ%{stage.group}", queue_id=0)


def committed(stage: BrokerUnderTest) -> list[Fields]:
    end = stage.prepare()
    stage.commit(end)
    found = stage.pulled(1)
    assert found[0]["preparedOffset"] == int(end["commitLogOffset"])
    return found + _until_dead(stage, found[0])


def committed_without_wait(stage: BrokerUnderTest) -> list[Fields]:
    stage.commit(stage.prepare(WAIT=""))
    return stage.pulled(1)


def committed_when_asked(stage: BrokerUnderTest) -> list[Fields]:
    stage.join()
    end = stage.prepare(flag=0)  # the reference loses it on the way (D21)
    asked = stage.asked(CHECK_TRANSACTION_STATE)
    (shown,) = record_fields(asked.body)
    named = {name: asked.fields[name] for name in ("tranStateTableOffset", "commitLogOffset")}
    stage.commit({**end, **named, "fromTransactionCheck": "true"})
    return [shown, *stage.pulled(1)]


def replied(stage: BrokerUnderTest) -> list[Fields]:
    stage.join()
    reply = {**SENT, "REPLY_TO_CLIENT": stage.group, "CORRELATION_ID": "c", "MSG_TYPE": "reply"}
    topic = f"{servers.CLUSTER}_REPLY_TOPIC"
    fields = send_fields(topic, 0, reply) | {"h": "7"}
    stage.wire.send(SEND_REPLY_MESSAGE_V2, fields, b"body")
    pushed = stage.asked(PUSH_REPLY_MESSAGE_TO_CLIENT)
    stage.wire.answer(pushed)
    text = pushed.fields.pop("properties")
    for name in ("storeTimestamp", "bornHost", "storeHost", "producerGroup"):
        pushed.fields.pop(name)
    mine = {"properties": dict(pair.split("\x01") for pair in text.split("\x02") if pair)}
    stored = stage.pulled(1, topic=topic, queue_id=0)
    return [{**pushed.fields, **mine}, *stored]


PLAYS: list[Play] = [
    plain,
    batch,
    delayed,
    sent_on,
    retried,
    retried_after_a_delay,
    dead_at_once,
    sent_to_the_retry_topic,
    committed,
    committed_without_wait,
    committed_when_asked,
    replied,
]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[servers.BrokerServer]]:
    """Ours first, then the reference."""
    folder = tmp_path_factory.mktemp("fields")
    namesrv = servers.namesrv("congreve", folder / "namesrv")
    namesrv.start()
    started = [
        servers.broker(
            *(kind, folder / kind, namesrv.address),
            broker_name=f"fields-{kind}",
            settings=SETTINGS,
        )
        for kind in ("congreve", "java")
    ]
    for broker in started:
        broker.start()
    yield started
    for broker in started:
        assert broker.stop() in (0, 143), broker.tail()
    namesrv.stop()


@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.__name__)
def test_a_consumer_gets_the_same_fields_as_from_the_reference(
    brokers: list[servers.BrokerServer], play: Play
) -> None:
    with ThreadPoolExecutor(len(brokers)) as pool:
        ours, theirs = pool.map(lambda broker: _played(play, broker), brokers)
    for one, other in zip(ours, theirs, strict=True):
        assert one == other


def _played(play: Play, broker: servers.BrokerServer) -> list[Fields]:
    stage = BrokerUnderTest(broker)
    names = {stage.topic: "TOPIC", stage.group: "GROUP"}
    try:
        return [_comparable(one, names) for one in play(stage)]
    finally:
        stage.wire.close()


def _comparable(one: Fields, names: dict[str, str]) -> Fields:
    def renamed(value: object) -> object:
        text = str(value)
        for name, stands_for in names.items():
            text = text.replace(name, stands_for)
        return text

    kept = {name: renamed(value) for name, value in one.items() if name not in OWN}
    kept["properties"] = {
        name: "OWN" if name in OWN_PROPERTIES else renamed(value)
        for name, value in one["properties"].items()
    }
    if "preparedOffset" in one:
        kept["preparedOffset"] = one["preparedOffset"] > 0
    return kept
