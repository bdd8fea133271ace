"""A member of a group that pulls what others of it pop at other times."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import defaultdict

from harness.wire import HEART_BEAT, PULL_MESSAGE, Wire, heartbeat, pull_fields, record_fields

from .popping_members import QUEUES, TOPIC, Ledger

QUERY_OFFSET, COMMIT_OFFSET = 14, 15


class PullingMember:
    """The only member: it pulls all queues, and those of its retry topic, from the group's offsets
    on, and commits most of what it gets."""

    def __init__(self, address: str, ledger: Ledger, chance: random.Random) -> None:
        self._ledger = ledger
        self._chance = chance
        self._wire = Wire(address)
        self._read: dict[tuple[str, int], list[int]] = defaultdict(list)  # and not committed

    def run(self, ended: threading.Event) -> None:
        """Pull until it has ended, or the broker is gone."""
        group = self._ledger.group
        retries = f"%RETRY%{group}"
        try:
            client = json.loads(heartbeat(TOPIC, group))
            (member,) = client["consumerDataSet"]
            member["subscriptionDataSet"] += [member["subscriptionDataSet"][0] | {"topic": retries}]
            assert self._wire.call(HEART_BEAT, {}, json.dumps(client).encode()).code == 0
            queues = [*((TOPIC, queue_id) for queue_id in range(QUEUES)), (retries, 0)]
            offsets = {queue: self._beginning(*queue) for queue in queues}
            while not ended.is_set():
                for queue in queues:
                    offsets[queue] = self._pull(*queue, offsets[queue])
        except OSError:
            pass
        finally:
            self._wire.close()

    def _fields(self, topic: str, queue_id: int) -> dict[str, str]:
        return {
            "consumerGroup": self._ledger.group,
            "topic": topic,
            "queueId": str(queue_id),
        }

    def _beginning(self, topic: str, queue_id: int) -> int:
        answer = self._wire.call(QUERY_OFFSET, self._fields(topic, queue_id))
        return 0 if answer.code else int(answer.fields["offset"])

    def _pull(self, topic: str, queue_id: int, offset: int) -> int:
        """Where the next pull begins."""
        most = self._chance.randrange(1, 33)
        fields = pull_fields(topic, queue_id, offset, most) | self._fields(topic, queue_id)
        answer = self._wire.call(PULL_MESSAGE, fields)
        if answer.code:
            return offset
        for record in record_fields(answer.body):
            number = int(record["body"])
            self._ledger.came(number, int(time.time() * 1000), 0)
            self._read[topic, queue_id].append(number)
        after = int(answer.fields["nextBeginOffset"])
        if self._chance.random() < 0.9:
            self._commit(topic, queue_id, after)
        return after

    def _commit(self, topic: str, queue_id: int, offset: int) -> None:
        numbers = self._read.pop((topic, queue_id), [])
        self._ledger.asked.update(numbers)
        fields = self._fields(topic, queue_id) | {"commitOffset": str(offset)}
        if self._wire.call(COMMIT_OFFSET, fields).code == 0:
            self._ledger.acknowledged.update(numbers)
        else:
            self._ledger.asked.difference_update(numbers)
