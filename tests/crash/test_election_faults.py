"""Faults of an elected group of processes: every acknowledged message is kept, once, in order."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from elections.faults import FAULTS, FULL_DISK, HOUR_S, QUEUES, TOPIC, config_of, run_faults
from harness import build
from harness.drivers import Driver, java_driver

from congreve.engine.store import MessageStore

DISK = 64 << 20
WITH_ROCKETMQ = 10
"""So many of the 60 faults of the long run."""


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    if missing := build.missing_tools("java", "mvn"):
        pytest.skip(f"not installed: {', '.join(missing)}")
    driver = java_driver(tmp_path_factory.mktemp("java-driver"), "JSON")
    yield driver
    driver.close()


def is_set_back(store: Path) -> bool:
    """Whether a message has a store time that is half an hour or more before that of another."""
    with MessageStore(config_of(store)) as opened:
        queues = [opened.queues.get(TOPIC, queue_id) for queue_id in range(QUEUES)]
        times = [
            opened.store_time(TOPIC, queue.queue_id, offset)
            for queue in queues
            for offset in range(queue.min, queue.max)
        ]
    return max(times) - min(times) > HOUR_S * 500


@pytest.mark.crash
async def test_a_killed_master_and_a_stale_master_lose_no_message(tmp_path: Path) -> None:
    """#6662 and #7689: a paused master that comes back, and one that was killed at full rate."""
    kinds = ["kill master", "pause master", "hold answers of etcd to master"]
    await run_faults(tmp_path, [*kinds, "hold reports to master"], 2)


@pytest.mark.crash
async def test_clocks_that_are_set_back_lose_no_message(tmp_path: Path) -> None:
    await run_faults(tmp_path, ["set clock of master back", "set clock of slave back"], 2)
    assert is_set_back(tmp_path / "1" / "store") and is_set_back(tmp_path / "2" / "store")


@pytest.mark.crash
@pytest.mark.parametrize("count", [2, 3])
async def test_a_member_that_lost_the_end_of_its_log_loses_no_message(
    tmp_path: Path, count: int
) -> None:
    await run_faults(tmp_path, [kind for kind in FAULTS if "lose" in kind], count)


@pytest.mark.crash
async def test_a_slave_with_a_full_disk_leaves_the_set_and_returns(
    tmp_path: Path, small_disk: Callable[[int], Path]
) -> None:
    stores = {number: small_disk(DISK) / "store" for number in (1, 2)}
    for store in stores.values():
        store.mkdir()
    # A lease that lasts: a switch on a slow machine would make the slave the master.
    await run_faults(tmp_path, [FULL_DISK], 2, stores, lease_s=15)


@pytest.mark.crash
async def test_clients_of_rocketmq_lose_no_message_when_the_master_dies(
    tmp_path: Path, java: Driver
) -> None:
    await run_faults(tmp_path, ["kill master"], 2, java=java)


@pytest.mark.crash
async def test_many_faults_lose_no_message(
    tmp_path: Path,
    kill_rounds: int,
    campaign: Callable[[str, int], None],
    small_disk: Callable[[int], Path],
    java: Driver,
) -> None:
    """60 faults with `make soak`, ten of them with RocketMQ's clients; none in a short run. Another
    number of rounds chooses other faults."""
    rounds = kill_rounds * 60 // 1000 - WITH_ROCKETMQ
    if rounds <= 0:
        pytest.skip("only with many rounds")
    choose = random.Random(kill_rounds)
    any_fault = list(FAULTS)
    of_rocketmq = [kind for kind in FAULTS if kind != FULL_DISK]  # its messages stay small
    for size in (2, 3):
        stores = {number: small_disk(16 * DISK) / "store" for number in range(1, size + 1)}
        for store in stores.values():
            store.mkdir()
        chosen = choose.choices(any_fault, k=-(-rounds // 2))
        await run_faults(tmp_path / str(size), chosen, size, stores)
        chosen = choose.choices(of_rocketmq, k=WITH_ROCKETMQ // 2)
        await run_faults(tmp_path / f"{size}-java", chosen, size, java=java)
    campaign("faults of an elected group", rounds)
    campaign("faults of an elected group with clients of RocketMQ", WITH_ROCKETMQ)
