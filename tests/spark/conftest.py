"""One Spark session for all tests here: starting a JVM costs more than any of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pyspark = pytest.importorskip("pyspark")

NAMESPACE = Path(__file__).parents[2] / "build" / "namespace"
LOG4J = Path(__file__).parents[2] / "spark" / "log4j2.properties"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session on local[2], which finds the source by itself."""
    from pyspark.sql import SparkSession

    # Spark's workers look for pyspark_* in folders, which an editable install does not show.
    with pytest.MonkeyPatch.context() as environment:
        paths = [str(NAMESPACE), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment.setenv("PYTHONPATH", os.pathsep.join(paths))
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        environment.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        session = (
            SparkSession.builder.master("local[2]")
            .appName("tests")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
            .config("spark.sql.python.filterPushdown.enabled", "true")
            .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={LOG4J.as_uri()}")
            .getOrCreate()
        )
        yield session
        session.stop()
