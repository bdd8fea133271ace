"""kill -9 of brokers and members in the middle of pops.

What was acknowledged never comes again, all else does, and nothing before its time.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import servers
from harness.wire import Wire

from .popping_members import QUEUES, Ledger, Member, make_group, send, settle_rest

MANY = 1000  # of --kill-rounds: then so many kills, over all backends
SETTINGS = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 2000),
    "flushDiskType": "SYNC_FLUSH",
    "flushConsumerOffsetInterval": "100",
    "defaultTopicQueueNums": str(QUEUES),
}
BACKENDS = ("mmap", "pool", "uring")


def one_round(broker: servers.Server, ledgers: list[Ledger], seed: int) -> None:
    chance = random.Random(seed)
    broker.start()
    with Wire(broker.address) as wire:
        if not seed:
            for ledger in ledgers:
                make_group(wire, ledger)
        send(wire, ledgers)
    members = [
        threading.Thread(target=Member(broker.address, ledger, 10 * seed + number).run)
        for number, ledger in enumerate(2 * ledgers)
    ]
    for member in members:
        member.start()
    time.sleep(chance.uniform(0.1, 0.8))
    broker.kill()
    for member in members:
        member.join(30)


@pytest.mark.crash
@pytest.mark.parametrize("backend", BACKENDS)
def test_acknowledged_messages_stay_away_and_others_come_back(
    backend: str, tmp_path: Path, kill_rounds: int, campaign: Callable[[str, int], None]
) -> None:
    rounds = MANY // len(BACKENDS) + 1 if kill_rounds >= MANY else max(kill_rounds // 10, 2)
    namesrv = servers.namesrv("congreve", tmp_path / "namesrv")
    settings = SETTINGS | {"ioBackend": backend}
    broker = servers.broker("congreve", tmp_path / "broker", namesrv.address, settings=settings)
    ledgers = [Ledger("popping", ordered=False), Ledger("in-order", ordered=True)]
    namesrv.start()
    try:
        for number in range(rounds):
            one_round(broker, ledgers, number)
        broker.start()
        for ledger in ledgers:
            settle_rest(broker.address, ledger)
        assert broker.stop() in (0, 143), broker.tail()
    finally:
        broker.kill()
        namesrv.kill()
    for ledger in ledgers:
        assert (ledger.again, ledger.early) == ([], []), ledger.group
        assert not ledger.missing, ledger.group
        assert ledger.acknowledged
    campaign(f"V pops with acknowledgements, kills, {backend}", rounds)
