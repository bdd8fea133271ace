"""A name server and a broker of either kind, set up alike, and what one asks of them."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness import servers
from harness.wire import (
    GET_MAX_OFFSET,
    PULL_MESSAGE,
    SEND_MESSAGE_V2,
    Wire,
    pull_fields,
    record_bodies,
    send_fields,
)

from .generator import Load

UPDATE_AND_CREATE_TOPIC = 17
PERM_READ_WRITE = 6
KINDS = ("congreve", "java")
# The heap of the reference's own measurements; touched before, so that no fault is measured.
JVM = ("-Xms4g", "-Xmx4g", "-XX:+UseG1GC")
PRETOUCH = ("-XX:+AlwaysPreTouch",)
RESTART_LIMIT_S = 120.0
SEGMENT_SIZE = 1 << 30
# Of our backends the one that has a message on disk the soonest; where it cannot work, the
# broker takes another.
SOONEST = {"ioBackend": "uring"}
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC = "rmq_sys_wheel_timer"
STORE_TIME = slice(56, 64)  # of a record with IPv4 hosts
# As long as no measurement lasts; a session that wants delivery starts with another.
NEVER_DUE = {"messageDelayLevel": "10h"}


class Running:
    """A started broker."""

    def __init__(self, kind: str, server: servers.BrokerServer) -> None:
        self.kind = kind
        self.server = server

    @property
    def pid(self) -> int:
        assert self.server.process is not None
        return self.server.process.pid

    @property
    def port(self) -> int:
        return self.server.port

    def create_topics(self, load: Load) -> None:
        """The topics that the load sends to."""
        with Wire(self.server.address) as wire:
            for name in topic_names(load):
                fields = {
                    "topic": name,
                    "defaultTopic": "TBW102",
                    "readQueueNums": str(load.queues),
                    "writeQueueNums": str(load.queues),
                    "perm": str(PERM_READ_WRITE),
                    "topicFilterType": "SINGLE_TAG",
                    "topicSysFlag": "0",
                    "order": "false",
                }
                answer = wire.call(UPDATE_AND_CREATE_TOPIC, fields)
                if answer.code != 0:
                    raise RuntimeError(f"topic {name} was not created: {answer.remark}")

    def stored(self, load: Load) -> int:
        """Messages in the load's topics, as the broker's own max offsets say."""
        total = 0
        with Wire(self.server.address) as wire:
            for name in topic_names(load):
                for queue in range(load.queues):
                    fields = {"topic": name, "queueId": str(queue)}
                    total += int(wire.call(GET_MAX_OFFSET, fields).fields["offset"])
        return total

    def parked(self, level: int) -> int:
        """Messages that were ever parked for a delay level."""
        with Wire(self.server.address) as wire:
            fields = {"topic": SCHEDULE_TOPIC, "queueId": str(level - 1)}
            return int(wire.call(GET_MAX_OFFSET, fields).fields["offset"])

    def timed(self) -> int:
        """Messages that were ever parked for a time of their own."""
        with Wire(self.server.address) as wire:
            fields = {"topic": TIMER_TOPIC, "queueId": "0"}
            return int(wire.call(GET_MAX_OFFSET, fields).fields["offset"])

    def send_timed(self, topic: str, wait_ms: int) -> None:
        """A message to queue 0 that is due so soon; its body is its time."""
        due = time.time_ns() // 1_000_000 + wait_ms
        fields = send_fields(topic, 0, {"TIMER_DELIVER_MS": str(due)})
        with Wire(self.server.address) as wire:
            wire.call(SEND_MESSAGE_V2, fields, b"%d" % due)

    def lateness(self, topic: str, count: int) -> list[int]:
        """By how many ms each of the messages of send_timed() was delivered behind its time."""
        found = []
        with Wire(self.server.address) as wire:
            for offset in range(count):
                answer = wire.call(PULL_MESSAGE, pull_fields(topic, 0, offset, 1))
                ((_, body),) = record_bodies(answer.body)
                found.append(int.from_bytes(answer.body[STORE_TIME], "big") - int(body))
        return found

    def restart_cold(self, **settings: str) -> None:
        """Restart it with other settings and nothing of its log in memory."""
        self.server.stop()
        for path in (self.server.store / "commitlog").iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        self._start(settings)

    def restart(self, **settings: str) -> None:
        """Stop it and start it with other settings."""
        self.server.stop()
        self._start(settings)

    def _start(self, settings: dict[str, str]) -> None:
        with self.server.config.open("a") as config:
            config.writelines(f"{key}={value}\n" for key, value in settings.items())
        self.server.start()

    def stored_between(self, load: Load) -> tuple[int, int]:
        """Store times in ms of the first and of the last message of the load's topics."""
        times = []
        with Wire(self.server.address) as wire:
            for name in topic_names(load):
                for queue in range(load.queues):
                    fields = {"topic": name, "queueId": str(queue)}
                    end = int(wire.call(GET_MAX_OFFSET, fields).fields["offset"])
                    for offset in (0, end - 1):
                        answer = wire.call(PULL_MESSAGE, pull_fields(name, queue, offset, 1))
                        times.append(int.from_bytes(answer.body[STORE_TIME], "big"))
        return min(times), max(times)

    def restart_seconds(self) -> float:
        """Kill it, start it, and send: seconds from exec to the first stored message."""
        topic = "ready"
        self.create_topics(Load(topic=topic))
        self.server.kill()
        begin = time.monotonic()
        process = self.server.spawn()
        while not _stores(self.server.address, topic):
            if process.poll() is not None or time.monotonic() - begin > RESTART_LIMIT_S:
                raise RuntimeError(f"{self.kind} did not come back:\n{self.server.tail()}")
            time.sleep(0.01)
        return time.monotonic() - begin


def topic_names(load: Load) -> list[str]:
    """As the generator names them."""
    if load.topics == 1:
        return [load.topic]
    return [f"{load.topic}-{number:04d}" for number in range(load.topics)]


def _stores(address: str, topic: str) -> bool:
    try:
        with Wire(address, timeout_s=1.0) as wire:
            answer = wire.call(SEND_MESSAGE_V2, send_fields(topic, 0, {}), b"ready")
    except OSError:
        return False
    return answer.code == 0


@contextmanager
def running(kind: str, folder: Path, *, flush: str, pretouch: bool = True) -> Iterator[Running]:
    """A broker with an empty store in the folder, which is gone afterwards."""
    shutil.rmtree(folder, ignore_errors=True)
    namesrv = servers.namesrv(kind, folder / "namesrv")
    broker = servers.broker(
        kind,
        folder / "broker",
        namesrv.address,
        settings={
            "mappedFileSizeCommitLog": str(SEGMENT_SIZE),
            "flushDiskType": flush,
            "enablePropertyFilter": "true",
            **NEVER_DUE,
            **(SOONEST if kind == "congreve" and flush == "SYNC_FLUSH" else {}),
        },
        jvm=(*JVM, *(PRETOUCH if pretouch else ())),
    )
    try:
        namesrv.start()
        broker.start()
        yield Running(kind, broker)
    finally:
        broker.kill()
        namesrv.kill()
        shutil.rmtree(folder, ignore_errors=True)
