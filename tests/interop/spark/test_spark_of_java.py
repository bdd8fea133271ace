"""A Java broker's messages as rows: from its files while it writes them, and by pulls."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from harness import servers
from harness.cluster import Cluster
from harness.drivers import Driver, message

import congreve
from congreve.spark.batch import BatchReader
from congreve.spark.errors import OptionError
from congreve.spark.options import parse
from congreve.spark.schema import checked_schema, wanted_schema

COUNT = 300
WAIT_S = 60
FILTERS: list[dict[str, str]] = [
    {},
    {"tags": "T1"},
    {"key": "k77"},
    *(
        {"expressionType": "SQL92", "subExpression": sql}
        for sql in (
            "n >= 100 AND n < 150",
            "TAGS IN ('T0', 'T2') AND n BETWEEN 10 AND 20",
            "odd = TRUE OR n = 8",
            "missing IS NULL AND kind IS NOT NULL",
            "missing > 3 OR kind = 'even'",
            "NOT (n > 3)",
        )
    ),
]


@pytest.fixture(scope="module")
def java_cluster(
    namesrv: servers.Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A broker of 4.9.4 whose records come into the log's files later than their entries."""
    broker = servers.broker(
        *("java", tmp_path_factory.mktemp("java-broker"), namesrv.address),
        broker_name=f"java-{uuid.uuid4().hex[:6]}",
        settings={
            **{"enablePropertyFilter": "true", "flushDiskType": "ASYNC_FLUSH"},
            **{"transientStorePoolEnable": "true", "transientStorePoolSize": "5"},
            "mappedFileSizeCommitLog": str(4 << 20),
        },
    )
    broker.start()
    yield Cluster(namesrv, broker)
    broker.kill()


def rows(**options: str) -> list[dict[str, Any]]:
    parsed = parse(options)
    reader = BatchReader(parsed, checked_schema(wanted_schema(parsed), parsed))
    return [row for part in reader.partitions() for b in reader.read(part) for row in b.to_pylist()]


def wait_for(count: int, **options: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while len(rows(**options)) < count and time.monotonic() < deadline:
        time.sleep(0.1)


def test_files_and_pulls_of_a_java_broker_give_the_same_rows(
    java_cluster: Cluster, java: Driver
) -> None:
    topic = f"rows-{uuid.uuid4().hex[:8]}"
    java_cluster.create_topic(java, topic, queues=4)
    messages = []
    for n in range(COUNT):
        properties = {"n": str(n), "kind": "odd" if n % 2 else "even"}
        if n % 2:
            properties["odd"] = "true"
        messages.append(
            message(topic, b"body %d" % n, tags=f"T{n % 3}", keys=f"k{n} x{n % 7}",
                    properties=properties)
        )  # fmt: skip
    name_server = java_cluster.namesrv.address
    broker = java_cluster.broker
    files = {"storePath": str(broker.store), "brokerName": broker.broker_name, "topic": topic}
    java.call("send", messages=messages[:200], namesrv=name_server)
    rows(**files, verifyCrc="true")  # while it writes: all messages so far, each complete
    java.call("send", messages=messages[200:], namesrv=name_server)
    wait_for(COUNT, **files)
    for chosen in FILTERS:
        by_files = rows(**files, **chosen)
        by_pulls = rows(nameServer=name_server, topic=topic, **chosen)
        assert by_files == by_pulls, chosen
        assert by_files, chosen
    found = rows(**files)
    assert len(found) == COUNT
    store = congreve.open_store(broker.store)
    columns = [name for name in found[0] if name != "brokerName"]
    by_reader = store.arrow(topic, columns).to_pylist()
    assert by_reader == [{name: row[name] for name in columns} for row in found]
    assert store.verify().problems == []


def test_an_error_names_a_java_broker_without_sql92_before_tasks_start(
    java_cluster: Cluster, java: Driver
) -> None:
    topic = f"rows-{uuid.uuid4().hex[:8]}"
    java_cluster.create_topic(java, topic, queues=1)
    name_server = java_cluster.namesrv.address
    java.call("send", messages=[message(topic, b"x")], namesrv=name_server)
    wait_for(1, nameServer=name_server, topic=topic)

    def allow(value: str) -> None:
        where = ("-n", name_server, "-b", java_cluster.broker.address)
        java.mqadmin("updateBrokerConfig", *where, "-k", "enablePropertyFilter", "-v", value)

    allow("false")
    try:
        with pytest.raises(OptionError, match=r"subExpression is 'n > 1': broker java-.*SQL92"):
            rows(nameServer=name_server, topic=topic, expressionType="SQL92", subExpression="n > 1")
    finally:
        allow("true")
