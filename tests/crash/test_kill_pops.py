"""kill -9 in the middle of pops: what was acknowledged never comes again, all else does."""

import contextlib
import random
import threading
import time
from pathlib import Path

import pytest
from harness import servers
from harness.wire import SEND_MESSAGE_V2, Answer, Wire, record_fields, send_fields

TOPIC, GROUP = "KilledPops", "popping"
POP, ACK = 200_050, 200_051
QUEUES = 4
SENT_A_ROUND = 200
INVISIBLE_MS = 400
ROUNDS_SHARE = 10  # of --kill-rounds
LAST_S = 60
SETTINGS = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 2000),
    "flushDiskType": "SYNC_FLUSH",
    "flushConsumerOffsetInterval": "100",
    "defaultTopicQueueNums": str(QUEUES),
}


class Ledger:
    """What was sent, delivered and acknowledged, by number."""

    def __init__(self) -> None:
        self.sent: set[int] = set()
        self.acknowledged: set[int] = set()
        self.asked: set[int] = set()  # the acknowledgement was sent
        self.again: list[int] = []  # delivered after they were acknowledged

    @property
    def missing(self) -> set[int]:
        """What has to be delivered still."""
        return self.sent - self.asked


def send(wire: Wire, ledger: Ledger) -> None:
    for number in range(len(ledger.sent), len(ledger.sent) + SENT_A_ROUND):
        fields = send_fields(TOPIC, number % QUEUES, {"KEYS": str(number)})
        assert wire.call(SEND_MESSAGE_V2, fields, str(number).encode()).code == 0
        ledger.sent.add(number)


def pop(wire: Wire, ledger: Ledger, chance: random.Random, keep: float) -> int:
    """One pop, and the acknowledgement of most of what it gets; returns how much it got."""
    fields = {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": "-1",
        "maxMsgNums": "32",
        "invisibleTime": str(INVISIBLE_MS),
        "pollTime": "200",
        "bornTime": "0",
        "initMode": "0",
    }
    answer = wire.call(POP, fields)
    if answer.code:
        return 0
    records = iter(record_fields(answer.body))
    starts = {tuple(entry.split(" ")[:2]): entry for entry in _entries(answer, "startOffsetInfo")}
    count = 0
    for entry in _entries(answer, "msgOffsetInfo"):
        kind, queue, offsets = entry.split(" ")
        start = starts[kind, queue].split(" ")[2]
        for offset in offsets.split(","):
            number = int(next(records)["body"])
            count += 1
            if number in ledger.acknowledged:
                ledger.again.append(number)
            if chance.random() < keep:
                continue
            times = (answer.fields[name] for name in ("popTime", "invisibleTime", "reviveQid"))
            handle = " ".join((start, *times, kind, "broker-a", queue, offset))
            ledger.asked.add(number)
            acked = wire.call(
                ACK,
                {
                    "consumerGroup": GROUP,
                    "topic": f"%RETRY%{GROUP}_{TOPIC}" if kind == "1" else TOPIC,
                    "queueId": queue,
                    "offset": offset,
                    "extraInfo": handle,
                },
            )
            if acked.code == 0:
                ledger.acknowledged.add(number)
            else:
                ledger.asked.discard(number)
    return count


def _entries(answer: Answer, name: str) -> list[str]:
    return answer.fields[name].split(";")


def pop_until_killed(wire: Wire, ledger: Ledger, chance: random.Random) -> None:
    """Pop and acknowledge most until the connection ends."""
    with contextlib.suppress(OSError):
        while True:
            pop(wire, ledger, chance, keep=0.3)


@pytest.mark.crash
@pytest.mark.parametrize("backend", ["mmap", "pool", "uring"])
def test_acknowledged_messages_stay_away_and_others_come_back(
    backend: str, tmp_path: Path, kill_rounds: int
) -> None:
    namesrv = servers.namesrv("congreve", tmp_path / "namesrv")
    settings = SETTINGS | {"ioBackend": backend}
    broker = servers.broker("congreve", tmp_path / "broker", namesrv.address, settings=settings)
    ledger, chance = Ledger(), random.Random(7)
    namesrv.start()
    try:
        for _ in range(max(kill_rounds // ROUNDS_SHARE, 2)):
            broker.start()
            with Wire(broker.address) as wire:
                send(wire, ledger)
                member = threading.Thread(target=pop_until_killed, args=(wire, ledger, chance))
                member.start()
                time.sleep(chance.uniform(0.1, 0.8))
                broker.kill()
                member.join(30)
        broker.start()
        with Wire(broker.address) as wire:
            until = time.monotonic() + LAST_S
            while ledger.missing and time.monotonic() < until:
                pop(wire, ledger, chance, keep=0.0)
        assert broker.stop() in (0, 143), broker.tail()
    finally:
        broker.kill()
        namesrv.kill()
    assert not ledger.again
    assert not ledger.missing
    assert ledger.acknowledged
