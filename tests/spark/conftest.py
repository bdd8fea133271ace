"""One Spark session for all tests here: starting a JVM costs more than any of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import build

from congreve.broker.broker import Broker
from congreve.broker.config import BrokerConfig
from congreve.client.admin import AdminClient
from congreve.client.consumer.consumer import PullConsumer
from congreve.client.message import Message
from congreve.client.producer.producer import Producer
from congreve.namesrv.server import NameServer
from congreve.remoting.loop.loop_thread import LoopThread

pyspark = pytest.importorskip("pyspark")

NAMESPACE = Path(__file__).parents[2] / "build" / "namespace"
LOG4J = Path(__file__).parents[2] / "spark" / "log4j2.properties"
QUICK_JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""No JVM of these tests lives long enough to be worth its better compiler."""


@pytest.fixture(scope="session")
def jvm() -> None:
    """Skips where there is no Java."""
    if missing := build.missing_tools("java"):
        pytest.skip(f"not installed: {', '.join(missing)}")


@pytest.fixture(scope="session")
def spark(jvm: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
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
            .config(
                "spark.driver.extraJavaOptions",
                f"{QUICK_JAVA} -Dlog4j2.configurationFile={LOG4J.as_uri()}",
            )
            .getOrCreate()
        )
        yield session
        session.stop()


class Cluster:
    """A name server and a broker, whose port stays the same when it starts again."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._loop = LoopThread("tests-spark")
        self._loop.start()
        self._namesrv = NameServer(host="127.0.0.1", port=0)
        self._loop.run(self._namesrv.start())
        self.address = self._namesrv.address
        self.port = 0
        self.start()

    def start(self) -> None:
        config = BrokerConfig()
        config.apply(
            {
                **{"namesrvAddr": self.address, "bindAddress": "127.0.0.1"},
                **{"brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1"},
                **{"listenPort": str(self.port), "storePathRootDir": str(self.root / "store")},
                **{"brokerName": "broker-a", "flushDiskType": "ASYNC_FLUSH"},
                **{"mappedFileSizeCommitLog": str(64 << 10), "maxIndexNum": "1000"},
                **{"maxHashSlotNum": "100", "defaultTopicQueueNums": "4"},
                "enablePropertyFilter": "true",
            }
        )
        broker = Broker(config)
        self._loop.run(broker.__aenter__())
        self.broker = broker
        self.port = int(self.broker.address.rpartition(":")[2])

    def stop(self) -> None:
        self._loop.run(self.broker.__aexit__(None, None, None))

    def close(self) -> None:
        self.stop()
        self._loop.run(self._namesrv.stop())
        self._loop.stop()

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """In the loop of the servers."""
        self._loop.run(coroutine)

    def topic(self, name: str, queues: int = 4) -> None:
        async def create() -> None:
            async with AdminClient(self.address) as admin:
                await admin.create_topic(name, queues=queues)

        self._loop.run(create())

    def send(self, topic: str, numbers: range, size: int = 40) -> None:
        """Messages whose bodies begin with their number, round the topic's four queues."""
        self.send_bodies(topic, [(b"%d " % n).ljust(size, b".") for n in numbers], numbers.start)

    def send_bodies(self, topic: str, bodies: list[bytes], first: int = 0) -> None:
        """Messages round the topic's queues: ten tags, a key and a property `n` of their own."""
        numbers = range(first, first + len(bodies))

        async def send() -> None:
            async with Producer(self.address, group="tests") as producer:
                queues = await producer.queues(topic)
                for queue in queues:
                    own = [n for n in numbers if n % len(queues) == queue.queue_id]
                    for part in (own[i : i + 50] for i in range(0, len(own), 50)):
                        await producer.send_batch(
                            [
                                Message(
                                    topic=topic,
                                    body=bodies[n - first],
                                    tags=f"Tag{n % 10}",
                                    keys=f"order-{n}",
                                    properties={"n": str(n)},
                                )
                                for n in part
                            ],
                            queue=queue,
                        )

        self._loop.run(send())

    def committed(self, group: str, topic: str) -> list[int | None]:
        """The offsets at which a group continues, by queue."""

        async def ask() -> list[int | None]:
            async with PullConsumer(self.address, group=group) as consumer:
                return [await consumer.committed(q) for q in await consumer.queues(topic)]

        return self._loop.run(ask())


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker and its name server."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.close()
