"""``python -m lakespeed [--messages N] [--turns N] [--codec NAME]``: the rate of an export into an
empty table as a share of the rate of "records to Arrow", in turns, in CPU seconds of one core.

Bodies have 128 bytes: random ones, which nothing compresses, JSON of orders, and repeated digits.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyiceberg.table import TableProperties
from sparkspeed import store

from congreve.lake.durable import SCHEMA, DurableTopic
from congreve.lake.export import Exporter
from congreve.lake.table import TopicTable, open_catalog

KINDS = ("random", "json", "digits")


def body_of(kind: str) -> Callable[[int], bytes]:
    """A function from a message's number to its body."""
    chance = random.Random(21)
    if kind == "random":
        return lambda number: chance.randbytes(store.BODY)

    def order(number: int) -> bytes:
        text = (
            f'{{"order":{number},"customer":"c{chance.randrange(90_000):05}","amount":'
            f'{chance.randrange(100_000) / 100},"currency":"EUR","status":"'
            f'{chance.choice(("new", "paid", "sent"))}","sku":"{chance.getrandbits(48):012x}"}}'
        )
        return text.encode().ljust(store.BODY)[: store.BODY]

    return order if kind == "json" else store.digits


def timed(work: Callable[[], int]) -> tuple[float, int]:
    """CPU seconds of this process, and the result."""
    started = time.process_time()
    result = work()
    return time.process_time() - started, result


def turn(root: Path, folder: Path, codec: str) -> tuple[float, float, int]:
    """CPU seconds of records to Arrow, those of an export, and the bytes of the table's files."""

    def to_arrow() -> int:
        topic = DurableTopic(root, store.TOPIC, store.BROKER)
        return sum(len(batch) for queue in topic.queues() for batch in topic.read(queue, 0))

    table = TopicTable(open_catalog(str(folder)), "rocketmq.bench", SCHEMA, "day")
    table.create()
    with table.iceberg.transaction() as change:
        change.set_properties({TableProperties.PARQUET_COMPRESSION: codec})

    def export() -> int:
        return Exporter(DurableTopic(root, store.TOPIC, store.BROKER), table).run()

    arrow, rows = timed(to_arrow)
    exported, added = timed(export)
    assert rows == added
    size = sum(path.stat().st_size for path in folder.rglob("*.parquet"))
    shutil.rmtree(folder)
    return arrow, exported, size


def main() -> None:
    """Print a row for each kind of bodies."""
    parser = argparse.ArgumentParser(prog="lakespeed")
    parser.add_argument("--messages", type=int, default=600_000)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--codec", default="zstd")
    chosen = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    print(f"{'bodies':8} {'to Arrow':>12} {'export':>12} {'share':>6} {'bytes a row':>12}")
    with tempfile.TemporaryDirectory() as scratch:
        for kind in KINDS:
            root = Path(scratch, kind)
            store.fill(root, chosen.messages, body_of(kind))
            folder = Path(scratch, "lake")
            turn(root, folder, chosen.codec)
            turns = [turn(root, folder, chosen.codec) for _ in range(chosen.turns)]
            arrow, exported = (statistics.median(t[i] for t in turns) for i in range(2))
            share = statistics.median(t[0] / t[1] for t in turns)
            million = chosen.messages / 1e6
            print(
                f"{kind:8} {million / arrow:8.2f} M/s {million / exported:8.2f} M/s {share:6.2f} "
                f"{turns[0][2] / chosen.messages:12.1f}",
                flush=True,
            )
            shutil.rmtree(root)


if __name__ == "__main__":
    main()
