"""Creates a Spark session with the settings that suit the source."""

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

#: Turns off Spark's checks of each Arrow value, for speed.
FAST_ARROW = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"

#: Spark settings for `pushdown` and for speed.
SETTINGS = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.executor.extraJavaOptions": FAST_ARROW,
}

#: Speeds up large bodies. Not among SETTINGS: workers that Spark 4.3 ends, by limit() or with
#: the session, then leave a BrokenPipeError's trace on stderr.
UNIX_SOCKETS = {"spark.python.unix.domain.socket.enabled": "true"}


def local_session(
    name: str, master: str = "local[2]", settings: Mapping[str, str] = SETTINGS
) -> SparkSession:
    """A session in this process, with this interpreter for its workers and without Spark's web UI.

    The source is registered, so that it is found when the package is installed for development.
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
    """Register ``format("rocketmq")`` with a session that cannot find it by itself.

    This is needed when the package comes by `--py-files`, whose files arrive after Spark has looked
    for sources, or is installed for development. A wheel is passed on to the workers as a zip file,
    because Spark adds files with another suffix to no path.
    """
    from congreve.spark.source import RocketMQDataSource

    shipped = congreve.ARCHIVE
    if shipped is not None and shipped.endswith(".whl"):
        # Spark serves the file from this folder, and removes the folder when it ends.
        folder = Path(SparkFiles.getRootDirectory(), "shipped")
        folder.mkdir(exist_ok=True)
        archive = folder / f"{Path(shipped).stem}.zip"
        shutil.copyfile(shipped, archive)
        context = session.sparkContext
        context.addPyFile(str(archive))
        # For streams: their planner looks for shipped files in a folder where Spark puts none.
        paths = [SparkFiles.get(archive.name), context.environment.get("PYTHONPATH")]
        context.environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    session.dataSource.register(RocketMQDataSource)
