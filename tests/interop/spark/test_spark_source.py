"""The Spark source's own reading and group offsets, beside the Java client and mqadmin."""

from __future__ import annotations

import zlib

from harness.cluster import Cluster
from harness.drivers import Driver, message

from congreve.spark.batch import BatchReader
from congreve.spark.options import parse
from congreve.spark.schema import checked_schema, wanted_schema
from congreve.spark.sources.cluster_source import ClusterSource


def test_messages_of_a_java_producer_become_rows_and_mqadmin_shows_the_group(
    java: Driver, cluster: Cluster, topic: str
) -> None:
    bodies = [b"body-%d" % i for i in range(200)] + [b"long " * 2000]
    messages = [
        message(
            topic, body, tags=f"T{i % 3}", keys=f"k{i}", properties={"n": str(i), "emoji": "🙂"}
        )
        for i, body in enumerate(bodies)
    ]
    java.call("send", messages=messages, namesrv=cluster.namesrv.address)
    group = f"spark-{topic}"
    options = parse(
        {
            **{"nameServer": cluster.namesrv.address, "topic": topic, "verifyCrc": "true"},
            "group": group,
        }
    )
    reader = BatchReader(options, checked_schema(wanted_schema(options), options))
    source = ClusterSource(options)
    try:
        ranges = reader.plan(source)
        rows = [
            row
            for part in ranges
            for batch in source.read(part, reader.scan())
            for row in batch.to_pylist()
        ]
        source.commit({part.queue: part.stop for part in ranges})
    finally:
        source.close()
    assert sorted(row["body"] for row in rows) == sorted(bodies)
    for row in rows:
        properties = dict(row["properties"])
        number = int(properties["n"])
        assert (row["tags"], row["keys"]) == (f"T{number % 3}", f"k{number}")
        assert properties["emoji"] == "🙂"
        assert row["msgId"] == properties["UNIQ_KEY"]
        compressed = row["sysFlag"] & 1
        assert compressed or row["bodyCRC"] == zlib.crc32(row["body"]) & 0x7FFFFFFF
        assert row["_corrupt"] is None
    progress = java.mqadmin("consumerProgress", "-n", cluster.namesrv.address, "-g", group)
    assert "Diff Total: 0" in progress, progress
    read = [line.split() for line in progress.splitlines() if line.startswith(topic)]
    assert sum(int(row[3]) for row in read) == len(bodies)
