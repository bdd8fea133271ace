"""A broker process under ten times its sensible load: it refuses the excess, serves its other
clients meanwhile, and releases all resources afterwards."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from congreve.remoting.messages.command import RemotingCommand

DESCRIPTORS = 256
MEMORY = 4 << 30  # of addresses: queues and segments are mapped
LIMITED = f'ulimit -n {DESCRIPTORS}; ulimit -v {MEMORY >> 10}; exec "$@"'
STORM = 600
MARGIN = 48 << 20
WAIT_S = 30
SETTINGS = {
    "maxTopics": "60",
    "maxGroups": "40",
    "maxGroupMembers": "8",
    "maxConsumerOffsets": "50",
    "maxSubscriptionBytes": str(3 << 19),
    "maxFilterBytes": str(1 << 20),
    "eventLoopWatchdogMillis": "50",
    "maxUnfinishedFrameBytes": str(4 << 20),
    "maxUnreadAnswerBytes": str(4 << 20),
    "frameTimeoutMills": "1000",
    "mappedFileSizeCommitLog": str(4 << 20),
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    "flushDiskType": "ASYNC_FLUSH",
}
SEND = {
    "a": "P", "b": "probe", "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": "1", "h": "0",
    "i": "", "j": "0", "k": "false", "m": "false",
}  # fmt: skip
POP = {
    "consumerGroup": "popping",
    "topic": "probe",
    "queueId": "0",
    "maxMsgNums": "1",
    "invisibleTime": "60000",
    "pollTime": "0",
    "bornTime": "0",
    "initMode": "0",
}
PULL = {
    "consumerGroup": "probes", "topic": "probe", "queueId": "0", "maxMsgNums": "1",
    "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*",
    "subVersion": "0",
}  # fmt: skip


class Peer:
    """One connection, one request at a time."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        self._file = self.socket.makefile("rb")

    def ask(self, code: int, fields: dict[str, str], body: bytes = b"") -> RemotingCommand:
        self.socket.sendall(RemotingCommand(code=code, ext_fields=fields, body=body).encode())
        while True:
            length = self._file.read(4)
            frame = length + self._file.read(int.from_bytes(length, "big"))
            answer = RemotingCommand.decode(frame)
            if answer.is_response:  # otherwise the broker notifies of changed members
                return answer

    def close(self) -> None:
        self._file.close()
        self.socket.close()


class Served:
    """The process, and a probe on one connection that sends and pulls."""

    def __init__(self, process: subprocess.Popen[str], port: int, log: Path) -> None:
        self.process = process
        self.port = port
        self.log = log
        self.sent = 0
        self.probe = Peer(port)

    def is_served(self) -> None:
        answer = self.probe.ask(310, SEND, b"%d" % self.sent)
        assert answer.code == 0, answer.remark
        answer = self.probe.ask(11, PULL | {"queueOffset": str(self.sent)})
        assert answer.code == 0 and answer.body.find(b"%d" % self.sent) > 0, answer.remark
        self.sent += 1

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def memory(self) -> int:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.partition("VmRSS:")[2].split()[0]) * 1024

    def comes_back_to(self, descriptors: int, memory: int) -> None:
        deadline = time.monotonic() + WAIT_S
        while self.descriptors() > descriptors + 4 and time.monotonic() < deadline:
            self.is_served()
            time.sleep(0.1)
        assert self.descriptors() <= descriptors + 4
        assert self.memory() <= memory + MARGIN


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    settings = SETTINGS | {
        "storePathRootDir": str(tmp_path / "store"),
        "listenPort": "0",
        "brokerIP1": "127.0.0.1",
        "bindAddress": "127.0.0.1",
    }
    log = tmp_path / "log"
    options = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
    with log.open("w") as errors:
        process = subprocess.Popen(
            ["sh", "-c", LIMITED, "sh", sys.executable, "-m", "congreve", "broker", *options],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert ready.startswith("ready"), log.read_text()
        broker = Served(process, int(ready.rpartition(":")[2]), log)
        broker.is_served()
        yield broker
        broker.is_served()
        broker.probe.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
        text = log.read_text()
        assert "Traceback" not in text and "loop is held" not in text, text[-3000:]
        assert len(text.splitlines()) < 20, text[-3000:]
    finally:
        process.kill()
        process.wait()


def connections(broker: Served) -> Iterator[Any]:
    for _ in range(STORM):
        with contextlib.suppress(OSError):
            yield socket.create_connection(("127.0.0.1", broker.port), timeout=WAIT_S)


def half_frames(broker: Served) -> Iterator[Any]:
    frame = RemotingCommand(code=310, ext_fields=SEND, body=bytes(1 << 20)).encode()
    for _ in range(100):
        with contextlib.suppress(OSError):
            one = socket.create_connection(("127.0.0.1", broker.port), timeout=WAIT_S)
            yield one
            one.settimeout(0.2)
            one.sendall(frame[: 1 << 19])


def unread_answers(broker: Served) -> Iterator[Any]:
    command = RemotingCommand(code=21, ext_fields={})
    for _ in range(20):
        with contextlib.suppress(OSError):
            one = socket.create_connection(("127.0.0.1", broker.port), timeout=WAIT_S)
            yield one
            one.settimeout(0.2)
            one.sendall(command.encode() * 400)


def topics(broker: Served) -> Iterator[Any]:
    peer = Peer(broker.port)
    yield peer
    codes = [peer.ask(310, SEND | {"b": f"T{i}"}, b"body").code for i in range(STORM)]
    assert 0 < codes.count(0) <= 60 and codes.count(0) + codes.count(1) == STORM


def offsets(broker: Served) -> Iterator[Any]:
    peer = Peer(broker.port)
    yield peer
    commit = {"topic": "probe", "queueId": "0", "commitOffset": "1"}
    codes = [peer.ask(15, commit | {"consumerGroup": f"G{i}"}).code for i in range(STORM)]
    assert 0 < codes.count(0) <= 50 and codes.count(0) + codes.count(1) == STORM


def members(broker: Served) -> Iterator[Any]:
    for i in range(80):
        peer = Peer(broker.port)
        yield peer
        assert peer.ask(34, {}, _heartbeat(f"c{i}", "G")).code == (0 if i < 8 else 1)


def groups(broker: Served) -> Iterator[Any]:
    peer = Peer(broker.port)
    yield peer
    codes = [peer.ask(34, {}, _heartbeat("c", f"G{i}")).code for i in range(400)]
    assert 0 < codes.count(0) <= 40 and codes.count(0) + codes.count(1) == 400


def subscriptions(broker: Served) -> Iterator[Any]:
    """Groups with fifty topics each, and a filter of 2 KiB for each of those."""
    words = ",".join(f"'{i:060}'" for i in range(32))
    topics = [f"F{i}" for i in range(50)]
    refused = 0
    for i in range(60):
        peer = Peer(broker.port)
        yield peer
        sql = f"a = {i} OR b IN ({words})"
        answer = peer.ask(34, {}, _heartbeat(f"c{i}", f"G{i}", topics, sql))
        if answer.code != 0:
            settings = ("maxFilterBytes", "maxSubscriptionBytes", "maxGroups")
            assert any(setting in (answer.remark or "") for setting in settings), answer.remark
            refused += 1
    assert 0 < refused < 60


def test_what_is_known_of_pulls_is_limited_by_its_bytes(served: Served) -> None:
    memory = served.memory()
    for i in range(3_500):
        subscription = f"{i:05}{'x' * 30_000}"
        answer = served.probe.ask(11, PULL | {"queueOffset": "9", "subscription": subscription})
        assert answer.code in (19, 20, 21), answer.remark
    assert served.memory() <= memory + (128 << 20)


def test_what_is_known_of_pops_is_limited_by_its_bytes(served: Served) -> None:
    memory = served.memory()
    for i in range(3_500):
        fields = {"exp": f"{i:05}{'x' * 30_000}", "expType": "TAG"}
        answer = served.probe.ask(200_050, POP | fields)
        assert answer.code in (0, 210), answer.remark
    assert served.memory() <= memory + (64 << 20)


def _heartbeat(client: str, group: str, topics: Sequence[str] = ("probe",), sql: str = "") -> bytes:
    filtering = {"subString": sql, "expressionType": "SQL92"} if sql else {"subString": "*"}
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [{"topic": topic} | filtering for topic in topics],
    }
    tree = {"clientID": client, "consumerDataSet": [consumer], "producerDataSet": []}
    return json.dumps(tree).encode()


@pytest.mark.parametrize(
    "storm",
    [connections, half_frames, unread_answers, topics, groups, members, offsets, subscriptions],
    ids=lambda storm: storm.__name__,
)
def test_a_storm_of_connections_is_refused_and_leaves_no_resources(
    storm: Any, served: Served
) -> None:
    descriptors, memory = served.descriptors(), served.memory()
    opened = []
    for one in storm(served):
        opened.append(one)
        if len(opened) % 10 == 0:
            served.is_served()
            assert served.descriptors() < DESCRIPTORS
    served.is_served()
    for one in opened:
        one.close()
    room = 30 if storm in (topics, groups) else 0  # queues keep their files open
    served.comes_back_to(descriptors + room, memory)
