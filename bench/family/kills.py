"""Acknowledged messages that a broker has lost after kill -9."""

from __future__ import annotations

import threading
import time
from collections import Counter

from harness.wire import (
    GET_MAX_OFFSET,
    PULL_MESSAGE,
    SEND_MESSAGE_V2,
    Wire,
    pull_fields,
    record_bodies,
    send_fields,
)
from sidebyside.brokers import Running

from congreve.console.loadgen.generator import Load

SENDERS = 8
SECONDS = 2.0
BATCH = 32
SUCCESS = 0


def lost_in_kills(broker: Running, kills: int) -> tuple[int, int]:
    """Acknowledged messages, and how many of them are missing after so many kills of the process
    while eight connections send one message at a time."""
    topic = "kills"
    broker.create_topics(Load(topic=topic, queues=SENDERS))
    acknowledged: Counter[bytes] = Counter()
    for number in range(kills):
        acknowledged += _sent_until_killed(broker, topic, number)
        broker.server.start()
    stored = _stored(broker, topic)
    return acknowledged.total(), (acknowledged - stored).total()


def _sent_until_killed(broker: Running, topic: str, number: int) -> Counter[bytes]:
    done: list[list[bytes]] = [[] for _ in range(SENDERS)]

    def send(queue: int) -> None:
        try:
            with Wire(broker.server.address) as wire:
                while True:
                    body = f"{number}-{queue}-{len(done[queue])}".encode()
                    fields = send_fields(topic, queue, {})
                    if wire.call(SEND_MESSAGE_V2, fields, body).code != SUCCESS:
                        return
                    done[queue].append(body)
        except OSError:
            return  # the broker was killed

    threads = [threading.Thread(target=send, args=(queue,)) for queue in range(SENDERS)]
    for thread in threads:
        thread.start()
    time.sleep(SECONDS)
    broker.server.kill()
    for thread in threads:
        thread.join()
    return Counter(body for bodies in done for body in bodies)


def _stored(broker: Running, topic: str) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    with Wire(broker.server.address) as wire:
        for queue in range(SENDERS):
            place = {"topic": topic, "queueId": str(queue)}
            end = int(wire.call(GET_MAX_OFFSET, place).fields["offset"])
            offset = 0
            while offset < end:
                answer = wire.call(PULL_MESSAGE, pull_fields(topic, queue, offset, BATCH))
                if answer.code != SUCCESS:
                    break
                found.update(body for _, body in record_bodies(answer.body))
                offset = int(answer.fields["nextBeginOffset"])
    return found
