"""kill -9 in the middle of transactions: none lost, none delivered twice or too early.

A message's number determines how its transaction ends: even ones are committed, odd ones rolled
back; most of each at once, the others only when the broker checks them.
"""

import json
import random
import threading
import time
from collections import Counter
from itertools import count
from pathlib import Path

import pytest
from harness import servers
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

TOPIC = "KilledTransactions"
GROUP = "transacting"
QUEUES = 4
PRODUCERS = 2
IN_FLIGHT = 16
COMMIT, ROLLBACK = "8", "12"
ASKED_FOR = 16  # two in so many messages, because a long campaign leaves millions
ROUNDS_SHARE = 10  # of --kill-rounds
STUCK_S = 90
SETTINGS = {
    "flushDiskType": "SYNC_FLUSH",
    "mappedFileSizeCommitLog": str(256 << 10),
    "mappedFileSizeConsumeQueue": str(20 * 200),
    "flushConsumerOffsetInterval": "100",
    "transactionTimeOut": "50",
    "transactionCheckInterval": "250",
    "transactionCheckMax": "1000",
}


class Ledger:
    """The shared records of all producers."""

    def __init__(self) -> None:
        self.numbers = count()
        self.acknowledged: set[int] = set()
        self.committed: set[int] = set()  # a commit was sent, once or more often


def number_of(body: bytes) -> int:
    return int(body.split(b"|")[0])


class Producer:
    """One connection that keeps transactions open and answers checks."""

    def __init__(self, wire: Wire, ledger: Ledger, seed: int) -> None:
        self._wire = wire
        self._ledger = ledger
        self._chance = random.Random(seed)
        self._waiting: dict[int, int] = {}  # opaque -> number
        producers = {"clientID": f"producer-{seed}", "producerDataSet": [{"groupName": GROUP}]}
        body = json.dumps({**producers, "consumerDataSet": []}).encode()
        wire.call(HEART_BEAT, {}, body)

    def begin(self) -> None:
        """Send half messages until enough are open."""
        while len(self._waiting) < IN_FLIGHT:
            number = next(self._ledger.numbers)
            fields = send_fields(
                TOPIC,
                number % QUEUES,
                {"UNIQ_KEY": f"key-{number}", "TRAN_MSG": "true", "PGROUP": GROUP},
            )
            text = b"%d|" % number + self._chance.randbytes(self._chance.randrange(3000))
            # Prepared, and born now: the broker does not check messages older than the log.
            fields |= {"f": "4", "g": str(time.time_ns() // 1_000_000)}
            self._waiting[self._wire.send(SEND_MESSAGE_V2, fields, text)] = number

    def take(self) -> None:
        """Handle the next frame of the broker."""
        frame = self._wire.receive()
        if frame.code == CHECK_TRANSACTION_STATE and not frame.flag & 1:
            ((_, text),) = record_bodies(frame.body)
            offsets = frame.fields["tranStateTableOffset"], frame.fields["commitLogOffset"]
            self._end(number_of(text), *offsets, checked=True)
        elif frame.opaque in self._waiting:
            self._prepared(self._waiting.pop(frame.opaque), frame)

    def _prepared(self, number: int, answer: Answer) -> None:
        if answer.code != 0:
            return
        self._ledger.acknowledged.add(number)
        if number % ASKED_FOR > 1:
            physical_offset = str(int(answer.fields["msgId"][16:], 16))
            self._end(number, answer.fields["queueOffset"], physical_offset)

    def _end(
        self, number: int, half_offset: str, physical_offset: str, *, checked: bool = False
    ) -> None:
        if number % 2 == 0:
            self._ledger.committed.add(number)
        fields = {
            "producerGroup": GROUP,
            "tranStateTableOffset": half_offset,
            "commitLogOffset": physical_offset,
            "commitOrRollback": ROLLBACK if number % 2 else COMMIT,
            "fromTransactionCheck": str(checked).lower(),
            "msgId": f"key-{number}",
        }
        self._wire.send(END_TRANSACTION, fields, oneway=True)


def produce_until_killed(address: str, ledger: Ledger, seed: int) -> None:
    try:
        with Wire(address) as wire:
            producer = Producer(wire, ledger, seed)
            while True:
                producer.begin()
                producer.take()
    except OSError:
        return


def await_more(ledger: Ledger, than: int) -> None:
    """Return when more transactions than these are acknowledged; a busy machine is slow."""
    deadline = time.monotonic() + STUCK_S
    while len(ledger.acknowledged) <= than:
        assert time.monotonic() < deadline, f"{len(ledger.acknowledged)} were acknowledged"
        time.sleep(0.01)


class Topic:
    """How often a consumer of the topic has received each number so far."""

    def __init__(self) -> None:
        self.seen: Counter[int] = Counter()
        self._next = [0] * QUEUES

    def look(self, address: str) -> Counter[int]:
        """Read the new messages."""
        with Wire(address) as wire:
            for queue_id in range(QUEUES):
                while self._take(wire, queue_id):
                    pass
        return self.seen

    def _take(self, wire: Wire, queue_id: int) -> bool:
        fields = pull_fields(TOPIC, queue_id, self._next[queue_id], 32)
        answer = wire.call(PULL_MESSAGE, fields)
        if answer.code == 0:
            self.seen.update(number_of(body) for _, body in record_bodies(answer.body))
            self._next[queue_id] = int(answer.fields["nextBeginOffset"])
        return answer.code == 0


def assert_none_wrong(seen: Counter[int], ledger: Ledger) -> None:
    twice = [number for number, times in seen.items() if times > 1]
    assert not twice, f"delivered twice: {twice[:10]}"
    early = seen.keys() - ledger.committed
    assert not early, f"visible without a commit: {sorted(early)[:10]}"


def answer_checks_until_done(address: str, ledger: Ledger, topic: Topic) -> None:
    """Answer checks until every acknowledged commit is visible, and for a while longer."""
    wanted = {number for number in ledger.acknowledged if number % 2 == 0}
    missing = wanted - topic.seen.keys()
    deadline = time.monotonic() + STUCK_S
    quiet = 0
    with Wire(address, timeout_s=0.3) as wire:
        producer = Producer(wire, ledger, seed=-1)
        while quiet < 2:
            look_again = time.monotonic() + 1
            try:
                while time.monotonic() < look_again:
                    producer.take()
            except TimeoutError:
                pass
            before, missing = missing, wanted - topic.look(address).keys()
            if len(missing) < len(before):
                deadline = time.monotonic() + STUCK_S
            assert time.monotonic() < deadline, (
                f"forgotten: {sorted(missing)[:10]} of {len(missing)}"
            )
            quiet += not missing


@pytest.mark.crash
def test_kills_lose_repeat_and_reveal_no_transaction(tmp_path: Path, kill_rounds: int) -> None:
    namesrv = servers.namesrv("congreve", tmp_path / "namesrv")
    broker = servers.broker("congreve", tmp_path / "broker", namesrv.address, settings=SETTINGS)
    ledger, topic, chance = Ledger(), Topic(), random.Random(37)
    namesrv.start()
    try:
        for number in range(max(1, kill_rounds // ROUNDS_SHARE)):
            broker.start()
            assert_none_wrong(topic.look(broker.address), ledger)
            producers = [
                threading.Thread(
                    target=produce_until_killed,
                    args=(broker.address, ledger, number * PRODUCERS + i),
                )
                for i in range(PRODUCERS)
            ]
            before = len(ledger.acknowledged)
            for producer in producers:
                producer.start()
            await_more(ledger, than=before + ROUNDS_SHARE)
            time.sleep(chance.uniform(0.05, 0.4))
            broker.kill()
            for producer in producers:
                producer.join(30)
        broker.start()
        answer_checks_until_done(broker.address, ledger, topic)
        everything = Topic().look(broker.address)
        assert_none_wrong(everything, ledger)
        assert topic.seen <= everything
        assert len(ledger.acknowledged) > kill_rounds
        assert broker.stop() in (0, 143), broker.tail()
    finally:
        broker.kill()
        namesrv.kill()
