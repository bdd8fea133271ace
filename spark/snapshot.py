"""The messages of a store at this moment as Parquet files, for Spark's own reader."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from pyspark import SparkFiles
from pyspark.sql.utils import is_remote

from congreve.records.columns.arrow import REPEATED
from congreve.spark.batch import BatchReader, RangePartition
from congreve.spark.errors import OptionError
from congreve.spark.options import parse
from congreve.spark.planning import cores
from congreve.spark.schema import checked_schema, wanted_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def snapshot(
    session: SparkSession, options: Mapping[str, str], folder: str | Path | None = None
) -> DataFrame:
    """The messages that a store has now, with the columns of the option `columns`.

    `options` are those of ``format("rocketmq")`` with `storePath`. The messages are copied into
    Parquet files in `folder` at once, by threads of this process, so that Spark reads them by its
    own reader instead of converting columns of Python into rows. All tasks need to see the folder;
    without it, a temporary one is used, which is removed when the session object, this process or
    Spark ends. Raises OptionError, and what format("rocketmq") raises.
    """
    parsed = parse(options)
    if parsed.store_path is None:
        raise OptionError("a snapshot needs the option storePath")
    if parsed.pushdown:
        raise OptionError("option pushdown is not for a snapshot: filter its result")
    wanted = wanted_schema(parsed)
    reader = BatchReader(parsed, checked_schema(wanted, parsed))
    if folder is None:
        # Spark removes its own folder also when this process is killed: its JVM ends after it.
        parent = None if is_remote() else SparkFiles.getRootDirectory()
        folder = tempfile.mkdtemp(prefix="congreve-snapshot-", dir=parent)
        weakref.finalize(session, shutil.rmtree, folder, ignore_errors=True)
    parts = [part for part in reader.partitions() if isinstance(part, RangePartition)]
    paths = [Path(folder, f"{number:05}.parquet") for number in range(len(parts))]
    with ThreadPoolExecutor(cores()) as threads:
        rows = [*threads.map(lambda part, path: _write(reader, part, path), parts, paths)]
    filled = [f"file://{path.absolute()}" for path, n in zip(paths, rows, strict=True) if n]
    if not filled:
        return session.createDataFrame([], wanted)
    return session.read.schema(wanted).parquet(*filled)


def shares_folders(session: SparkSession) -> bool:
    """Whether all tasks see the folders of this process: those of a local session do."""
    return not is_remote() and (session.conf.get("spark.master") or "").startswith("local")


def _write(reader: BatchReader, part: RangePartition, path: Path) -> int:
    """Write the messages of a partition; returns their number. A file without any has no footer.

    The files live for a session, and each page is read a few times: compression would cost more
    than it saves.
    """
    rows = 0
    with path.open("wb") as sink:
        file: pq.ParquetWriter | None = None
        for batch in reader.batches(part):
            if file is None:
                file = pq.ParquetWriter(
                    *(sink, batch.schema),
                    compression="none",
                    use_dictionary=[*REPEATED],
                    write_statistics=False,
                    store_schema=False,
                )
            if len(batch):
                file.write_batch(batch, row_group_size=len(batch))
            rows += len(batch)
        if file is not None:
            file.close()
    return rows
