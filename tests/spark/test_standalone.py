"""A Spark of several processes: a master, two workers, the package shipped to them as one file."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from congreve.base.version import __version__

from .conftest import QUICK_JAVA
from .stores import write

ROOT = Path(__file__).parents[2]
NAMESPACE = ROOT / "build" / "namespace"
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
SPARK_SUBMIT = SPARK_CLASS.with_name("spark-submit")
WAIT_S = 90
CONF = {
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": QUICK_JAVA,
    # The first task waits until both executors are there.
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{WAIT_S}s",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
}

APPLICATION = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
import congreve
assert "unpacked" in congreve.__path__[0], congreve.__path__
from congreve.spark.session import register
register(spark)
where = {"storePath": sys.argv[1], "topic": "T", "startingOffsets": "earliest"}
frame = spark.read.format("rocketmq").options(**where).load()
counts = frame.groupBy("tags").count().collect()
print("COUNTS", sorted((row["tags"], row["count"]) for row in counts))
stream = spark.readStream.format("rocketmq").options(**where, columns="queueOffset").load()
query = stream.writeStream.format("noop").trigger(availableNow=True).start()
query.awaitTermination()
print("STREAMED", query.lastProgress.numInputRows)
spark.stop()
"""


def wheel(folder: Path) -> Path:
    """What the wheel holds, under a wheel's name."""
    archive = folder / f"congreve-{__version__}-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(archive, "w") as file:
        for parent, _, names in os.walk(NAMESPACE, followlinks=True):
            for name in names:
                if name.endswith((".py", ".so", ".properties")):
                    path = Path(parent, name)
                    file.write(path, path.relative_to(NAMESPACE))
    return archive


@contextmanager
def daemon(log: Path, *arguments: str) -> Iterator[None]:
    environment = {**os.environ, **settings()}
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(SPARK_CLASS), *arguments], stdout=out, stderr=out, env=environment, cwd=log.parent
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def settings() -> dict[str, str]:
    return {
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": "",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
        "SPARK_LAUNCHER_OPTS": QUICK_JAVA,
        "SPARK_NO_DAEMONIZE": "1",
    }


def found_in(log: Path, pattern: str) -> str:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        if match := re.search(pattern, log.read_text(errors="replace")):
            return match.group(0)
        time.sleep(0.2)
    raise AssertionError(log.read_text(errors="replace")[-4000:])


@pytest.mark.slow
@pytest.mark.usefixtures("jvm")
def test_workers_get_the_package_as_a_file_and_share_the_queues(tmp_path: Path) -> None:
    store = write(tmp_path / "store", 400)
    archive = wheel(tmp_path)
    application = tmp_path / "application.py"
    application.write_text(APPLICATION)
    master = "org.apache.spark.deploy.master.Master"
    worker = "org.apache.spark.deploy.worker.Worker"
    log = tmp_path / "master.log"
    with daemon(log, master, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"):
        address = found_in(log, r"spark://127\.0\.0\.1:\d+")
        common = ("--cores", "1", "--memory", "600m", "--webui-port", "0", "--work-dir")
        with (
            daemon(tmp_path / "w1.log", worker, address, *common, str(tmp_path / "w1")),
            daemon(tmp_path / "w2.log", worker, address, *common, str(tmp_path / "w2")),
        ):
            done = subprocess.run(
                [
                    *(str(SPARK_SUBMIT), "--master", address, "--py-files", str(archive)),
                    *("--executor-memory", "512m", "--driver-java-options", QUICK_JAVA),
                    *(
                        part
                        for name, value in CONF.items()
                        for part in ("--conf", f"{name}={value}")
                    ),
                    *(str(application), str(store)),
                ],
                env={**os.environ, **settings()},
                cwd=tmp_path,
                capture_output=True,
                text=True,
                check=False,
                timeout=2 * WAIT_S,
            )
    assert done.returncode == 0, done.stdout + "\n".join(
        line for line in done.stderr.splitlines() if " INFO " not in line
    )
    wanted = [(f"Tag{i}", 40) for i in range(10)]
    assert f"COUNTS {wanted}" in done.stdout, done.stdout
    assert "STREAMED 400" in done.stdout, done.stdout
    for name in ("w1", "w2"):
        assert list((tmp_path / name).glob("app-*/*/congreve-*.zip.*.unpacked/congreve/records")), (
            name
        )
