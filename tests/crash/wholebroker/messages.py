"""Requests that store messages in a broker's log, in every possible way."""

from __future__ import annotations

import json
import random
import struct
import time

from harness.servers import CLUSTER
from harness.wire import (
    CHECK_TRANSACTION_STATE,
    END_TRANSACTION,
    HEART_BEAT,
    PULL_MESSAGE,
    SEND_MESSAGE_V2,
    Answer,
    Wire,
    pull_fields,
    record_bodies,
    send_fields,
)
from wholebroker import codes
from wholebroker.history import SUCCESS, Copies, History, number_of
from wholebroker.requests import Requests
from wholebroker.session import Session

SHARED = "Shared"
QUEUES = 4
MADE_BY_SEND = (QUEUES, QUEUES, 6)  # queues to read, to write, permissions
MADE_FOR_GROUP = (1, 1, 6)
DEFAULT_GROUP = (1, 1, 16)  # may consume, queues of its retry topic, attempts
REPLY_TOPIC = f"{CLUSTER}_REPLY_TOPIC"
PRODUCER_GROUP = "transacting"
LEVELS_MS = (1_000, 2_000, 3_000, 4_000)
COMMIT, ROLLBACK = "8", "12"
SUSPEND, COMMIT_OFFSET, HAS_SUBSCRIPTION = 2, 1, 4
LONG_NAMES = {
    "a": "producerGroup",
    "b": "topic",
    "c": "defaultTopic",
    "d": "defaultTopicQueueNums",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
    "k": "unitMode",
    "m": "batch",
}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def unique_key(number: int) -> str:
    return f"{number:032X}"


def serve(history: History, wire: Wire, request: Answer) -> None:
    """Answers requests of the broker: ends a transaction, receives a reply."""
    if request.code == CHECK_TRANSACTION_STATE:
        ((_, body),) = record_bodies(request.body)
        fields = request.fields
        offsets = fields["tranStateTableOffset"], fields["commitLogOffset"]
        end = end_fields(history, number_of(body), *offsets, checked=True)
        wire.send(END_TRANSACTION, end, oneway=True)
    elif request.code == codes.PUSH_REPLY_MESSAGE_TO_CLIENT:
        wire.reply(request)


def end_fields(
    history: History, number: int, half_offset: str, physical_offset: str, *, checked: bool = False
) -> dict[str, str]:
    """The header of END_TRANSACTION, with the outcome that was chosen with the message."""
    commits = history.commits[number]
    if commits:
        history.message(SHARED, number).asked = 1
    return {
        "producerGroup": PRODUCER_GROUP,
        "tranStateTableOffset": half_offset,
        "commitLogOffset": physical_offset,
        "commitOrRollback": COMMIT if commits else ROLLBACK,
        "fromTransactionCheck": str(checked).lower(),
        "msgId": unique_key(number),
    }


def _member(number: int, body: bytes) -> bytes:
    """One message of a batch (RocketMQ: MessageDecoder.encodeMessage)."""
    properties = f"KEYS\x01k{number}\x02".encode()
    size = 22 + len(body) + len(properties)
    head = struct.pack(">iiiii", size, 0, 0, 0, len(body))
    return head + body + struct.pack(">h", len(properties)) + properties


def register_producer(session: Session, name: str) -> None:
    """Register a producer, so that the broker sends its checks to this connection."""
    producers = {"clientID": name, "producerDataSet": [{"groupName": PRODUCER_GROUP}]}
    body = json.dumps({**producers, "consumerDataSet": []}).encode()
    session.call("producer heartbeat", HEART_BEAT, {}, body)


class MessageRequests(Requests):
    """One client's sends and pulls."""

    def __init__(
        self,
        session: Session,
        history: History,
        chance: random.Random,
        name: str,
        own_topics: list[str],
    ) -> None:
        super().__init__(session, history, chance, name, own_topics)
        self._sent: list[int] = []  # in SHARED, for this client to send back

    # --- now

    def send(self) -> None:
        self._send_all("send", SHARED, 1)

    def send_many(self) -> None:
        """Send messages without waiting for each answer."""
        self._send_all("send pipelined", SHARED, self._chance.randrange(2, 24))

    def send_old(self) -> None:
        """Send with the header of long names."""
        self._send_all("send, long names", SHARED, 2, code=codes.SEND_MESSAGE)

    def send_to_new_topic(self) -> None:
        topic = f"Sent-{self._name}-{self._history.next_number()}"
        self._send_all("send that makes a topic", topic, self._chance.randrange(1, 4))

    def send_to_own_topic(self) -> None:
        """Send to a topic that may be deleted, and that no send creates."""
        topic = self._chance.choice(self._own_topics)
        self._send_all("send to a topic of its own", topic, 3, template="no-template", queues=1)

    def send_nowhere(self) -> None:
        """Send to a queue that does not exist; the broker refuses it."""
        number = self._history.next_number()
        copies = self._history.message(SHARED, number)
        copies.ask()
        fields = self._fields(SHARED, number, queue_id=99)
        answer = self._session.call("send refused", SEND_MESSAGE_V2, fields, copies.body)
        if self._history.refuses(answer.code):
            copies.refused()

    def send_oneway(self) -> None:
        number = self._history.next_number()
        copies = self._history.message(SHARED, number)
        copies.ask()
        fields = self._fields(SHARED, number)
        self._session.wire.send(SEND_MESSAGE_V2, fields, copies.body, oneway=True)
        self._history.answers["send one-way", SUCCESS] += 1

    def send_batch(self) -> None:
        numbers = [self._history.next_number() for _ in range(self._chance.randrange(2, 20))]
        all_copies = [self._history.message(SHARED, number) for number in numbers]
        for copies in all_copies:
            copies.ask()
        batch = (SHARED, numbers)
        self._history.batches.append(batch)
        fields = {**self._fields(SHARED, numbers[0]), "i": "", "m": "true"}
        body = b"".join(
            _member(number, copies.body) for number, copies in zip(numbers, all_copies, strict=True)
        )
        answer = self._session.call("send batch", codes.SEND_BATCH_MESSAGE, fields, body)
        for at, copies in enumerate(all_copies):
            self._take(copies, answer, at)
        if self._history.refuses(answer.code):
            self._history.batches.remove(batch)

    def _send_all(
        self,
        kind: str,
        topic: str,
        count: int,
        *,
        code: int = SEND_MESSAGE_V2,
        template: str = "TBW102",
        queues: int = QUEUES,
    ) -> None:
        made = self._history.register("topic", topic)
        if template == "TBW102" and MADE_BY_SEND not in made.allowed():
            made.ask(MADE_BY_SEND)
        numbers = [self._history.next_number() for _ in range(count)]
        requests = []
        for number in numbers:
            copies = self._history.message(topic, number)
            copies.ask()
            fields = self._fields(topic, number, queue_id=self._chance.randrange(queues))
            fields["c"] = template
            if code == codes.SEND_MESSAGE:
                fields = {LONG_NAMES[name]: value for name, value in fields.items()}
            requests.append((fields, copies.body))
        answers = self._session.calls(kind, code, requests)
        for number, answer in zip(numbers, answers, strict=True):
            self._take(self._history.message(topic, number), answer)
            if answer.code == SUCCESS and template == "TBW102":
                made.done(MADE_BY_SEND)
            if answer.code == SUCCESS and topic == SHARED:
                self._sent.append(number)

    def _take(self, copies: Copies, answer: Answer, at: int = 0) -> None:
        """`at` counts the members of a batch."""
        if answer.code == SUCCESS:
            place = int(answer.fields["queueId"]), int(answer.fields["queueOffset"]) + at
            copies.done(place, int(answer.fields["msgId"].split(",")[at][16:], 16))
        elif self._history.refuses(answer.code):
            copies.refused()

    def _fields(
        self, topic: str, number: int, *, queue_id: int | None = None, **properties: str
    ) -> dict[str, str]:
        kept = {"UNIQ_KEY": unique_key(number), "KEYS": f"k{number}", "TAGS": "t", **properties}
        queue_id = self._chance.randrange(QUEUES) if queue_id is None else queue_id
        return {**send_fields(topic, queue_id, kept), "g": str(now_ms())}

    # --- later

    def send_by_level(self) -> None:
        level = self._chance.randrange(1, len(LEVELS_MS) + 1)
        self._send_later("send by level", now_ms() + LEVELS_MS[level - 1], DELAY=str(level))

    def send_by_time(self) -> None:
        delay = self._chance.randrange(100, 4_000)
        due = now_ms() + delay
        name, value = self._chance.choice(
            [("TIMER_DELIVER_MS", due), ("TIMER_DELAY_MS", delay), ("TIMER_DELAY_SEC", 1)]
        )
        due = now_ms() + 1000 if name == "TIMER_DELAY_SEC" else due
        self._send_later("send by time", due, **{name: str(value)})

    def _send_later(self, kind: str, due_ms: int, **properties: str) -> None:
        number = self._history.next_number()
        copies = self._history.message(SHARED, number)
        copies.at_once, copies.not_before_ms = False, due_ms
        copies.ask()
        fields = self._fields(SHARED, number, **properties)
        answer = self._session.call(kind, SEND_MESSAGE_V2, fields, copies.body)
        if answer.code == SUCCESS:
            copies.done()
        elif self._history.refuses(answer.code):
            copies.refused()

    def send_back(self) -> None:
        """Send back a message as failed; each message only once."""
        if not self._sent:
            return
        number = self._sent.pop(self._chance.randrange(len(self._sent)))
        original = self._history.message(SHARED, number)
        group = f"Back-{self._name}"
        level = self._chance.randrange(-1, len(LEVELS_MS) + 1)
        topic = f"%DLQ%{group}" if level < 0 else f"%RETRY%{group}"
        copies = self._history.message(topic, number)
        if level >= 0:
            copies.at_once = False
            copies.not_before_ms = now_ms() + LEVELS_MS[(level or 3) - 1]
        copies.ask()
        made = [
            (self._history.register("group", group), DEFAULT_GROUP),
            (self._history.register("topic", f"%RETRY%{group}"), MADE_FOR_GROUP),
            (self._history.register("topic", topic), MADE_FOR_GROUP),
        ]
        for register, value in made:
            if value not in register.allowed():
                register.ask(value)
        fields = {
            "offset": str(original.physical_offset),
            "group": group,
            "delayLevel": str(level),
            "originMsgId": unique_key(number),
            "originTopic": SHARED,
            "unitMode": "false",
        }
        kind = "send back, dead" if level < 0 else "send back, retried"
        answer = self._session.call(kind, codes.CONSUMER_SEND_MSG_BACK, fields)
        if answer.code == SUCCESS:
            copies.done()
            for register, value in made:
                register.done(value)
        elif self._history.refuses(answer.code):
            copies.refused()

    # --- transactions, request and reply

    def transact(self) -> None:
        number = self._history.next_number()
        copies = self._history.message(SHARED, number)
        copies.at_once = False
        self._history.commits[number] = self._chance.random() < 0.6
        half = {"TRAN_MSG": "true", "PGROUP": PRODUCER_GROUP}
        fields = {**self._fields(SHARED, number, **half), "f": "4"}
        answer = self._session.call("half message", SEND_MESSAGE_V2, fields, copies.body)
        if answer.code != SUCCESS:
            return
        if self._history.commits[number]:
            copies.promised = 1
        if self._chance.random() < 0.3:
            return  # so that the broker checks it
        physical_offset = str(int(answer.fields["msgId"][16:], 16))
        end = end_fields(self._history, number, answer.fields["queueOffset"], physical_offset)
        if self._chance.random() < 0.3:
            self._session.wire.send(END_TRANSACTION, end, oneway=True)
            return
        answer = self._session.call("end of a transaction", END_TRANSACTION, end)
        if answer.code == SUCCESS and self._history.commits[number]:
            copies.at_once = True

    def reply(self) -> None:
        """Reply to itself: the broker pushes a reply to the requester, and stores it.

        A connection has its newest ids only, and this one has named others since it registered.
        """
        register_producer(self._session, self._name)
        number = self._history.next_number()
        copies = self._history.message(REPLY_TOPIC, number)
        copies.ask()
        answered = {
            "REPLY_TO_CLIENT": self._name,
            "CORRELATION_ID": str(number),
            "MSG_TYPE": "reply",
        }
        fields = self._fields(REPLY_TOPIC, number, queue_id=0, **answered)
        answer = self._session.call("reply", codes.SEND_REPLY_MESSAGE_V2, fields, copies.body)
        self._take(copies, answer)

    # --- reading

    def pull(self) -> None:
        """The broker may hold it for a while; the received messages must be the sent ones."""
        queue_id = self._chance.randrange(QUEUES)
        group = f"Pull-{self._name}"
        committed = self._history.register("offset", SHARED, group, queue_id)
        offset = self._chance.randrange(1, 200)
        flags = SUSPEND | HAS_SUBSCRIPTION
        if self._chance.random() < 0.5:
            committed.ask(offset)
            flags |= COMMIT_OFFSET
        fields = {
            **pull_fields(SHARED, queue_id, offset, 32),
            "consumerGroup": group,
            "sysFlag": str(flags),
            "commitOffset": str(offset),
            "suspendTimeoutMillis": "50",
        }
        answer = self._session.call("pull", PULL_MESSAGE, fields)
        if answer.code == SUCCESS:
            for at, body in record_bodies(answer.body):
                try:
                    number_of(body)
                except ValueError as error:
                    self._history.faults.append(f"pulled at {at} of queue {queue_id}: {error}")

    def query(self) -> None:
        if not self._sent:
            return
        number = self._chance.choice(self._sent)
        by_key = {
            "topic": SHARED,
            "key": f"k{number}",
            "maxNum": "8",
            "beginTimestamp": "0",
            "endTimestamp": str(1 << 60),
        }
        self._session.call("query by key", codes.QUERY_MESSAGE, by_key)
        offset = self._history.message(SHARED, number).physical_offset
        answer = self._session.call("view by id", codes.VIEW_MESSAGE_BY_ID, {"offset": str(offset)})
        bodies = [body for _, body in record_bodies(answer.body)] if answer.code == SUCCESS else []
        if bodies != [self._history.message(SHARED, number).body]:
            self._history.faults.append(f"message {number} is not viewed by its id: {answer.code}")
