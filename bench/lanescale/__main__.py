"""``python -m lanescale``: appends by one lane, and by two lanes on two cores.

    PYTHONPATH=bench python -m lanescale

It compiles its loop (appends.pyx) into build/bench, against the modules that are installed.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from threading import Barrier
from types import ModuleType

import click
from Cython.Build import cythonize
from setuptools import Distribution, Extension

from congreve.base.clock import Clock
from congreve.engine.log.commit_log import CommitLog
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.io_backends.mapped.mapped import MmapBackend
from congreve.records.message.message import Record

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
HOST = ("127.0.0.1", 10911)
PROPERTIES = {"UNIQ_KEY": "7F00000100002A9F0000000000000001", "WAIT": "true", "TAGS": "TagA"}
SEGMENT = 1 << 30
CHUNKS = (1, 4, 32)
LANE_NS = (0, 1_000, 2_000)
PASSES = 10


def compiled() -> ModuleType:
    """The loop, compiled where its source is newer."""
    target = ROOT / "build" / "bench" / "lanescale"
    extension = Extension("appends", [str(HERE / "appends.pyx")], extra_compile_args=["-O3"])
    (module,) = cythonize(
        [extension], include_path=[str(ROOT / "build" / "namespace")], build_dir=str(target)
    )
    module.include_dirs.append(str(ROOT / "build" / "namespace"))
    command = Distribution({"ext_modules": [module]}).get_command_obj("build_ext")
    command.build_lib = command.build_temp = str(target)
    command.ensure_finalized()
    command.run()
    spec = importlib.util.spec_from_file_location("appends", command.get_ext_fullpath("appends"))
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def measured(folder: Path, lanes: int, count: int, chunk: int, lane_ns: int) -> tuple[float, float]:
    """Nanoseconds a message until all lanes are done, and under the lock; medians of passes."""
    backend = MmapBackend()
    log = CommitLog(str(folder / "commitlog"), SEGMENT, backend, Clock())
    log.load()
    backend.start(0)
    record = Record(
        topic="lanes", body=bytes(128), properties=PROPERTIES, born_host=HOST, store_host=HOST
    )
    queues = [ConsumeQueue(str(folder / f"lanes/{i}"), "lanes", i) for i in range(lanes)]
    log.append_record(record, queues[0])  # opens the segment
    append = compiled().append

    together = Barrier(lanes)

    def lane(number: int) -> tuple[int, int, int]:
        os.sched_setaffinity(0, {number})
        together.wait()
        found: tuple[int, int, int] = append(
            log, queues[number], record, count // lanes, chunk, lane_ns
        )
        return found

    passes = []
    with ThreadPoolExecutor(lanes) as threads:
        for _ in range(PASSES):
            begun, ended, held = zip(*threads.map(lane, range(lanes)), strict=True)
            passes.append(((max(ended) - min(begun)) / count, sum(held) / count))
    backend.stop()
    log.close()
    whole, under = zip(*passes[1:], strict=True)  # the first one opens the queues' files
    return median(whole), median(under)


@click.command()
@click.option("--messages", default=300_000, show_default=True)
def main(messages: int) -> None:
    """Print nanoseconds a message of 128 bytes."""
    print("lane  chunk  lanes   ns a message   under the lock")
    for lane_ns in LANE_NS:
        for chunk in CHUNKS:
            for lanes in (1, 2):
                with tempfile.TemporaryDirectory() as folder:
                    whole, held = measured(Path(folder), lanes, messages, chunk, lane_ns)
                print(f"{lane_ns:4}  {chunk:5}  {lanes:5}   {whole:12.0f}   {held:14.0f}")


if __name__ == "__main__":
    main()
