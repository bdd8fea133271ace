"""kill -9 of an exporter at random moments: no row is missing, none is duplicated."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from . import bodies, stores

ROUNDS_SHARE = {"export": 5, "follow": 5, "bodies": 25}  # of --kill-rounds


def in_tables(warehouse: Path) -> list[stores.Row]:
    """The rows of the table and of its dead letters, the same for pyiceberg and DuckDB."""
    rows = [row for name in bodies.TABLES for row in stores.in_table(warehouse, name)]
    assert sorted(rows) == sorted(
        row for name in bodies.TABLES for row in stores.in_duckdb(warehouse, name)
    )
    return sorted(rows)


@pytest.mark.crash
@pytest.mark.parametrize("form", ROUNDS_SHARE)
def test_a_killed_export_leaves_each_message_once(
    tmp_path: Path, kill_rounds: int, campaign: Callable[[str, int], None], form: str
) -> None:
    schema = bodies.schema_file(tmp_path)
    with_schema = ("--body", f"json:{schema}") if form == "bodies" else ()
    more = (*with_schema, *(("--lag", "0.1") if form == "follow" else ()))
    name = "follow" if form == "follow" else "export"
    put = partial(stores.put, body=bodies.mixed) if form == "bodies" else stores.put
    rounds = max(kill_rounds // ROUNDS_SHARE[form], 1)
    warehouse, chance = tmp_path / "lake", random.Random()
    store = tmp_path / "store"
    with stores.open_writer(store) as writer:
        put(writer, 0, 100)
    started = time.monotonic()
    assert stores.command(store, warehouse, *with_schema).wait() == 0
    usual = time.monotonic() - started
    for number in range(rounds):
        with stores.open_writer(store) as writer:
            put(writer, 100 * (number + 1), 100)
        process = stores.command(store, warehouse, "--commit-bytes", "1", *more, name=name)
        # Half of the time passes before the first commit.
        time.sleep(usual * chance.uniform(0.5, 1.5))
        process.kill()
        process.communicate()
        rows = in_tables(warehouse)
        assert len({row[:2] for row in rows}) == len(rows), "rows are duplicated"
    done = stores.command(store, warehouse, *with_schema)
    assert done.wait() == 0, done.communicate()[0]
    assert in_tables(warehouse) == stores.in_store(store)
    campaign(f"{form} to a table: kill", rounds)
