"""A Spark session that suits the source: its switches on, its log quiet."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark import SparkFiles
from pyspark.sql import SparkSession

import congreve

LOG4J = Path(__file__).with_name("log4j2.properties")

#: Leaves out checks of each Arrow value; rows come a tenth to a fifth faster.
FAST_ARROW = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"

#: What a session needs for `pushdown`, and what makes the source faster. All are Spark's own.
SETTINGS = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.executor.extraJavaOptions": FAST_ARROW,
}

#: Makes bodies a tenth to a quarter faster. Not among SETTINGS: workers that Spark 4.3 ends, by
#: limit() or with the session, then leave a BrokenPipeError's trace on stderr.
UNIX_SOCKETS = {"spark.python.unix.domain.socket.enabled": "true"}


def local_session(
    name: str, master: str = "local[2]", settings: Mapping[str, str] = SETTINGS
) -> SparkSession:
    """A session in this process, with this interpreter for its workers and no web page.

    The source is registered, so that it is found where the package is installed for development.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = (
        SparkSession.builder.master(master)
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config(
            "spark.driver.extraJavaOptions",
            f"{FAST_ARROW} -Dlog4j2.configurationFile={LOG4J.as_uri()}",
        )
    )
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    register(session)
    return session


def register(session: SparkSession) -> None:
    """Make ``format("rocketmq")`` known to a session that cannot find it by itself.

    Needed where the package came by `--py-files`, whose files come after Spark has looked for
    sources, or is installed for development. A wheel goes on to the workers as the zip file that
    it is: Spark puts no other kind of name on their paths.
    """
    from congreve.spark.source import RocketMQDataSource

    shipped = congreve.ARCHIVE
    if shipped is not None and shipped.endswith(".whl"):
        # Spark serves it from there, and removes it at its end.
        folder = Path(SparkFiles.getRootDirectory(), "shipped")
        folder.mkdir(exist_ok=True)
        archive = folder / f"{Path(shipped).stem}.zip"
        shutil.copyfile(shipped, archive)
        context = session.sparkContext
        context.addPyFile(str(archive))
        # For streams: Spark has their planner look for shipped files where it puts none.
        paths = [SparkFiles.get(archive.name), context.environment.get("PYTHONPATH")]
        context.environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    session.dataSource.register(RocketMQDataSource)
