"""Stores to export, tables to compare with them, and the command."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
from harness.stores.small_store import small_store
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from congreve import open_store
from congreve.base.clock import ManualClock
from congreve.engine.store import MessageStore
from congreve.lake.table import open_catalog
from congreve.records.message.message import Record

BEGIN_MS = 1_750_000_000_000
COLUMNS = ("queueId", "queueOffset", "body", "bodyCRC")
HOST = ("127.0.0.1", 10911)
TOPIC = "T"

Row = tuple[int, int, bytes, int]  # queue id, queue offset, body, CRC


def open_writer(root: Path) -> MessageStore:
    """A store with small files."""
    return MessageStore(small_store(root), clock=ManualClock(BEGIN_MS))


def numbered(number: int) -> bytes:
    """The usual body."""
    return b"body %d" % number


def put(
    store: MessageStore, first: int, count: int, body: Callable[[int], bytes] = numbered
) -> None:
    """Messages of four queues, three an hour, so that a table has several partitions."""
    clock = store.clock
    assert isinstance(clock, ManualClock)
    for number in range(first, first + count):
        clock.set(BEGIN_MS + number * 1_200_000)
        store.put(
            Record(
                topic=TOPIC,
                body=body(number),
                properties={"TAGS": f"Tag{number % 3}", "KEYS": f"key-{number} all"},
                queue_id=number % 4,
                born_host=HOST,
                store_host=HOST,
            )
        )


def put_plain(store: MessageStore, count: int) -> None:
    """Messages without properties."""
    for _ in range(count):
        store.put(Record(topic=TOPIC, body=b"plain", born_host=HOST, store_host=HOST))


def write(root: Path, messages: int) -> Path:
    """A store that was stopped cleanly."""
    with open_writer(root) as store:
        put(store, 0, messages)
    return root


def in_store(root: Path) -> list[Row]:
    """Every message by queue and offset."""
    return _rows(open_store(root).arrow(TOPIC, COLUMNS))


def table_of(warehouse: Path, name: str = TOPIC) -> Table:
    """The table as the catalog has it now."""
    return open_catalog(str(warehouse)).load_table(f"rocketmq.{name}")


def in_table(warehouse: Path, name: str = TOPIC) -> list[Row]:
    """Every row by queue and offset, as pyiceberg reads it; none if there is no table yet."""
    try:
        table = table_of(warehouse, name)
    except NoSuchTableError:
        return []
    return rows_of(table)


def rows_of(table: Table) -> list[Row]:
    """Every row of a table by queue and offset, as pyiceberg reads it."""
    return _rows(table.scan(selected_fields=COLUMNS).to_arrow())


def in_duckdb(warehouse: Path, name: str = TOPIC) -> list[Row]:
    """The same as DuckDB reads it from the files of the current snapshot."""
    try:
        files = [task.file.file_path for task in table_of(warehouse, name).scan().plan_files()]
    except NoSuchTableError:
        return []
    if not files:
        return []
    query = "select queueId, queueOffset, body, bodyCRC from read_parquet(?) order by 1, 2"
    return duckdb.execute(query, [[file.removeprefix("file://") for file in files]]).fetchall()


def command(
    store: Path, warehouse: Path | str, *more: str, name: str = "export"
) -> subprocess.Popen[str]:
    """`congreve lake export`, or another command of a store, in a process of its own."""
    return _command(name, "--store", str(store), "--warehouse", str(warehouse), *more)


def upkeep_command(warehouse: Path, *more: str) -> subprocess.Popen[str]:
    """`congreve lake upkeep` in a process of its own."""
    return _command("upkeep", "--warehouse", str(warehouse), *more)


def _command(*args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "congreve", "lake", *args, "-t", TOPIC],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _rows(table: pa.Table) -> list[Row]:
    columns = table.to_pydict()
    return sorted(zip(*(columns[name] for name in COLUMNS), strict=True))
