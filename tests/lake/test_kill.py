"""kill -9 of an exporter at random moments: no row is missing, none is duplicated."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from . import stores

ROUNDS_SHARE = 5  # of --kill-rounds


@pytest.mark.crash
@pytest.mark.parametrize("more", [(), ("--lag", "0.1")], ids=["export", "follow"])
def test_a_killed_export_leaves_each_message_once(
    tmp_path: Path, kill_rounds: int, campaign: Callable[[str, int], None], more: tuple[str, ...]
) -> None:
    name = "follow" if more else "export"
    rounds = max(kill_rounds // ROUNDS_SHARE, 1)
    warehouse, chance = tmp_path / "lake", random.Random()
    store = stores.write(tmp_path / "store", 100)
    started = time.monotonic()
    assert stores.command(store, warehouse).wait() == 0
    usual = time.monotonic() - started
    for number in range(rounds):
        with stores.open_writer(store) as writer:
            stores.put(writer, 100 * (number + 1), 100)
        process = stores.command(store, warehouse, "--commit-bytes", "1", *more, name=name)
        # Half of the time passes before the first commit.
        time.sleep(usual * chance.uniform(0.5, 1.5))
        process.kill()
        process.communicate()
        rows = stores.in_table(warehouse)
        assert rows == stores.in_duckdb(warehouse)
        assert len({row[:2] for row in rows}) == len(rows), "rows are duplicated"
    done = stores.command(store, warehouse)
    assert done.wait() == 0, done.communicate()[0]
    assert stores.in_table(warehouse) == stores.in_duckdb(warehouse) == stores.in_store(store)
    campaign(f"{name} to a table: kill", rounds)
