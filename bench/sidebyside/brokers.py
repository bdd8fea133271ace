"""A name server and a broker of either kind with the same settings, and queries of their state."""

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

from congreve.console.loadgen.generator import Load

UPDATE_AND_CREATE_TOPIC = 17
PERM_READ_WRITE = 6
KINDS = ("congreve", "java")
# The heap of the reference's own benchmarks; pre-touched, so that no page fault is measured.
JVM = ("-Xms4g", "-Xmx4g", "-XX:+UseG1GC")
PRETOUCH = ("-XX:+AlwaysPreTouch",)
RESTART_LIMIT_S = 120.0
SEGMENT_SIZE = 1 << 30
# The backend with the lowest latency to disk; when it is not available, the
# broker uses another.
SOONEST = {"ioBackend": "uring"}
# Without it each start of a broker compiles its modules while it already delivers messages.
WITH_BYTECODE = {"PYTHONDONTWRITEBYTECODE": ""}
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC = "rmq_sys_wheel_timer"
STORE_TIME = slice(56, 64)  # of a record with IPv4 hosts
# Longer than any measurement; sessions that measure delivery use another value.
NEVER_DUE = {"messageDelayLevel": "10h"}


class Running:
    """A started broker."""

    def __init__(self, kind: str, server: servers.BrokerServer) -> None:
        self.kind = kind
        self.server = server

    @property
    def pid(self) -> int:
        """The process id."""
        assert self.server.process is not None
        return self.server.process.pid

    @property
    def port(self) -> int:
        """The broker's port."""
        return self.server.port

    def create_topics(self, load: Load) -> None:
        """Create the topics of the load."""
        with Wire(self.server.address) as wire:
            for name in topic_names(load):
                create_topic(wire, name, load.queues)

    def stored(self, load: Load) -> int:
        """Messages in the load's topics, by the broker's own max offsets."""
        total = 0
        with Wire(self.server.address) as wire:
            for name in topic_names(load):
                for queue in range(load.queues):
                    fields = {"topic": name, "queueId": str(queue)}
                    total += int(wire.call(GET_MAX_OFFSET, fields).fields["offset"])
        return total

    def parked(self, level: int) -> int:
        """Messages parked for a delay level so far."""
        with Wire(self.server.address) as wire:
            fields = {"topic": SCHEDULE_TOPIC, "queueId": str(level - 1)}
            return int(wire.call(GET_MAX_OFFSET, fields).fields["offset"])

    def timed(self) -> int:
        """Messages parked for an individual time so far."""
        with Wire(self.server.address) as wire:
            fields = {"topic": TIMER_TOPIC, "queueId": "0"}
            return int(wire.call(GET_MAX_OFFSET, fields).fields["offset"])

    def send_timed(self, topic: str, wait_ms: int) -> None:
        """Send a message to queue 0 with a delivery time; its body holds the time."""
        due = time.time_ns() // 1_000_000 + wait_ms
        fields = send_fields(topic, 0, {"TIMER_DELIVER_MS": str(due)})
        with Wire(self.server.address) as wire:
            wire.call(SEND_MESSAGE_V2, fields, b"%d" % due)

    def lateness(self, topic: str, count: int) -> list[int]:
        """How many ms after its time each message of send_timed() was delivered."""
        found = []
        with Wire(self.server.address) as wire:
            for offset in range(count):
                answer = wire.call(PULL_MESSAGE, pull_fields(topic, 0, offset, 1))
                ((_, body),) = record_bodies(answer.body)
                found.append(int.from_bytes(answer.body[STORE_TIME], "big") - int(body))
        return found

    def restart_cold(self, **settings: str) -> None:
        """Restart with other settings and without the log in the page cache."""
        self.server.stop()
        for path in (self.server.store / "commitlog").iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        self._start(settings)

    def restart(self, **settings: str) -> None:
        """Restart with other settings."""
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
        """Kill the broker, start it, and send: seconds from exec to the first stored message."""
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


def create_topic(wire: Wire, name: str, queues: int) -> None:
    """Create a topic, or change its queues. Raises RuntimeError when the broker refuses it."""
    fields = {
        "topic": name,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": str(PERM_READ_WRITE),
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    answer = wire.call(UPDATE_AND_CREATE_TOPIC, fields)
    if answer.code != 0:
        raise RuntimeError(f"topic {name} was not created: {answer.remark}")


def topic_names(load: Load) -> list[str]:
    """The generator's names of the topics."""
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
def started(
    kind: str, folder: Path, namesrv: servers.Server, broker: servers.BrokerServer
) -> Iterator[Running]:
    """Both servers run; then they are killed, and the folder is removed."""
    try:
        namesrv.start()
        broker.start()
        yield Running(kind, broker)
    finally:
        broker.kill()
        namesrv.kill()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running(
    kind: str,
    folder: Path,
    *,
    flush: str,
    pretouch: bool = True,
    own: dict[str, str] | None = None,
    python: Path | None = None,
) -> Iterator[Running]:
    """A broker with an empty store in the folder, which is removed afterwards.

    `own` are further settings of a Congreve broker; `python` runs it, with the Congreve that is
    installed there (default: this one).
    """
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
            **(own or {} if kind == "congreve" else {}),
        },
        jvm=(*JVM, *(PRETOUCH if pretouch else ())),
        watchdog_millis=0,
    )
    if python is not None:
        namesrv.command[0] = broker.command[0] = str(python)
    if kind == "congreve":
        broker.environment = WITH_BYTECODE
    with started(kind, folder, namesrv, broker) as found:
        yield found
