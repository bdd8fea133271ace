"""Requests that change the state of a broker and a name server, except messages."""

from __future__ import annotations

import json
import random

from harness.wire import HEART_BEAT, heartbeat
from wholebroker import codes
from wholebroker.history import ABSENT, SUCCESS, History, Register, Value
from wholebroker.messages import DEFAULT_GROUP, MADE_FOR_GROUP, QUEUES, SHARED
from wholebroker.requests import Requests
from wholebroker.session import Session

GROUPS = 3
READ_QUEUES = 8
NAMESPACE = "HistoryOfKills"
HOSTILE = ("{%s}", '"%s', "\\%s", "$ref%s", "@type%s", "名%s", "'%s':", "[%s", " %s", "\x00%s")
#: Harmless settings that a running broker accepts; one client changes each.
SETTINGS = (
    "shortPollingTimeMills",
    "defaultQueryMaxNum",
    "startAcceptSendRequestTimeStamp",
    "maxMsgsNumBatch",
)
LONGEST_GROUP = 255


class StateRequests(Requests):
    """One client's changes of topics, groups, offsets, locks and settings."""

    def __init__(
        self,
        session: Session,
        history: History,
        chance: random.Random,
        name: str,
        own_topics: list[str],
    ) -> None:
        super().__init__(session, history, chance, name, own_topics)
        self._groups = [f"Group-{name}-{at}" for at in range(GROUPS)]
        self._members: list[str] = []

    def _change(
        self,
        kind: str,
        register: Register,
        value: Value,
        code: int,
        fields: dict[str, str],
        body: bytes = b"",
    ) -> bool:
        """Send one request to set a value; returns whether the broker accepted it."""
        register.ask(value)
        answer = self._session.call(kind, code, fields, body)
        if answer.code == SUCCESS:
            register.done(value)
        elif self._history.refuses(answer.code):
            register.refused(value)
        return answer.code == SUCCESS

    def _hostile(self) -> str:
        return self._chance.choice(HOSTILE) % self._name

    # --- topics

    def update_topic(self) -> None:
        self._update_topic(self._chance.choice(self._own_topics))

    def update_hostile_topic(self) -> None:
        self._update_topic(self._hostile())

    def _update_topic(self, topic: str) -> None:
        queues = self._chance.randrange(1, READ_QUEUES + 1)
        fields = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": str(READ_QUEUES),
            "writeQueueNums": str(queues),
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        register = self._history.register("topic", topic)
        value = (READ_QUEUES, queues, 6)
        self._change("update topic", register, value, codes.UPDATE_AND_CREATE_TOPIC, fields)

    def delete_topic(self) -> None:
        topic = self._chance.choice(self._own_topics)
        self._history.topic_is_deleted(topic, certain=False)
        register = self._history.register("topic", topic)
        fields = {"topic": topic}
        if self._change("delete topic", register, ABSENT, codes.DELETE_TOPIC_IN_BROKER, fields):
            self._history.topic_is_deleted(topic, certain=True)

    # --- groups

    def update_group(self) -> None:
        self._update_group(self._chance.choice(self._groups))

    def update_hostile_group(self) -> None:
        self._update_group(self._hostile())

    def _update_group(self, group: str) -> None:
        queues, attempts = self._chance.randrange(1, 5), self._chance.randrange(1, 100)
        body = {
            "groupName": group,
            "consumeEnable": True,
            "retryQueueNums": queues,
            "retryMaxTimes": attempts,
        }
        register = self._history.register("group", group)
        code = codes.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        value = (1, queues, attempts)
        self._change("update group", register, value, code, {}, json.dumps(body).encode())

    def delete_group(self) -> None:
        """With its offsets."""
        group = self._chance.choice(self._groups)
        offsets = [
            register
            for key, register in self._history.registers.copy().items()
            if key[0] == "offset" and key[2] == group
        ]
        for register in offsets:
            register.ask(ABSENT)
        register = self._history.register("group", group)
        fields = {"groupName": group, "removeOffset": "true"}
        if self._change("delete group", register, ABSENT, codes.DELETE_SUBSCRIPTIONGROUP, fields):
            for register in offsets:
                register.done(ABSENT)

    def join(self) -> None:
        """A heartbeat of a new group, which creates it and its retry topic."""
        group = f"Joined-{self._name}-{self._history.next_number()}"
        if self._chance.random() < 0.1:
            group = group.ljust(LONGEST_GROUP - len("%RETRY%"), "x")[:120]
        made = (
            (self._history.register("group", group), DEFAULT_GROUP),
            (self._history.register("topic", f"%RETRY%{group}"), MADE_FOR_GROUP),
        )
        for register, value in made:
            register.ask(value)
        answer = self._session.call("heartbeat", HEART_BEAT, {}, heartbeat(SHARED, group))
        if answer.code == SUCCESS:
            for register, value in made:
                register.done(value)
            self._members.append(group)

    def join_with_filter(self) -> None:
        """A heartbeat with SQL92; the broker may refuse or keep invalid names."""
        group = self._hostile() if self._chance.random() < 0.5 else f"Filter-{self._name}"
        topic = self._hostile() if self._chance.random() < 0.5 else SHARED
        subscription = {
            "topic": topic,
            "subString": f"a > {self._chance.randrange(1000)} and b = '{self._name}'",
            "subVersion": self._history.next_number(),
            "expressionType": "SQL92",
        }
        body = heartbeat(topic, group, subscriptionDataSet=[subscription])
        self._session.call("heartbeat with filter", HEART_BEAT, {}, body)

    # --- offsets

    def update_offset(self) -> None:
        self._update_offset(self._chance.choice(self._groups))

    def update_hostile_offset(self) -> None:
        self._update_offset(self._hostile())

    def _update_offset(self, group: str) -> None:
        topic = self._chance.choice([SHARED, *self._own_topics])
        self._commit(group, topic, self._chance.randrange(QUEUES))

    def _commit(self, group: str, topic: str, queue_id: int) -> None:
        register = self._history.register("offset", topic, group, queue_id)
        offset = self._chance.choice((self._chance.randrange(10_000), 2**63 - 1))
        fields = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": str(queue_id),
            "commitOffset": str(offset),
        }
        code = codes.UPDATE_CONSUMER_OFFSET
        self._change("update offset", register, offset, code, fields)

    def clone_offsets(self) -> None:
        source, target = self._groups[0], f"Clone-{self._name}"
        pairs = [
            (
                self._history.register("offset", SHARED, target, queue_id),
                self._history.register("offset", SHARED, source, queue_id).allowed(),
            )
            for queue_id in range(QUEUES)
        ]
        if all(set(values) == {ABSENT} for _, values in pairs):
            return
        if all(ABSENT in values for _, values in pairs):
            # The source may have no offsets at all, and then the target keeps its own.
            pairs = [(register, [*values, *register.allowed()]) for register, values in pairs]
        for register, values in pairs:
            register.open += values
        fields = {"srcGroup": source, "destGroup": target, "topic": SHARED, "offline": "true"}
        answer = self._session.call("clone offsets", codes.CLONE_GROUP_OFFSET, fields)
        for register, values in pairs:
            if answer.code == SUCCESS:
                register.done_as_one_of(values)
            elif self._history.refuses(answer.code):
                for value in values:
                    register.refused(value)

    def reset_offsets(self) -> None:
        """Reset offsets: the broker's table changes when members commit, and these never do."""
        if not self._members:
            return
        group = self._chance.choice(self._members)
        for queue_id in range(QUEUES):  # refused where one has no offset
            self._commit(group, SHARED, queue_id)
        fields = {"topic": SHARED, "group": group, "timestamp": "-1", "isForce": "true"}
        self._session.call("reset offsets", codes.INVOKE_BROKER_TO_RESET_OFFSET, fields)

    def lock(self) -> None:
        """A restart drops locks, so the test checks at once whether the client holds this one.

        A new store has no queue to lock.
        """
        if self._session.call("stats", codes.GET_TOPIC_STATS_INFO, {"topic": SHARED}).code:
            return
        queue = {"topic": SHARED, "brokerName": "broker-a", "queueId": 0}
        body = {"consumerGroup": f"Lock-{self._name}", "clientId": self._name, "mqSet": [queue]}
        answer = self._session.call("lock", codes.LOCK_BATCH_MQ, {}, json.dumps(body).encode())
        if b'"queueId":0' not in answer.body:
            self._history.faults.append(f"{self._name} does not get the lock that it asks for")
        if self._chance.random() < 0.5:
            code = codes.UNLOCK_BATCH_MQ
            self._session.call("unlock", code, {}, json.dumps(body).encode())

    # --- settings

    def update_config(self) -> None:
        key = SETTINGS[int(self._name) % len(SETTINGS)]
        value = str(self._chance.randrange(1, 1000))
        register = self._history.register("config", key)
        body = f"{key}={value}\n".encode()
        self._change("update config", register, value, codes.UPDATE_BROKER_CONFIG, {}, body)


class NameServerRequests(Requests):
    """One client's settings at the name server."""

    def change(self) -> None:
        key = self._chance.choice((f"key-{self._name}", *(name % self._name for name in HOSTILE)))
        register = self._history.register("kv", NAMESPACE, key)
        fields = {"namespace": NAMESPACE, "key": key}
        value: str | None = ABSENT
        code = codes.DELETE_KV_CONFIG
        if self._chance.random() < 0.7:
            value = f"{self._chance.randrange(1000)}{self._chance.choice(HOSTILE) % 'v'}"
            code = codes.PUT_KV_CONFIG
            fields["value"] = value
        register.ask(value)
        answer = self._session.call("key-value setting", code, fields)
        if answer.code == SUCCESS:
            register.done(value)
        elif self._history.refuses(answer.code):
            register.refused(value)
