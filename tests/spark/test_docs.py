"""What docs/spark.md and docs/flights.py show runs unchanged, on a topic as of `make run`."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from congreve.client.consumer.push import ConsumeFrom, PushConsumer

from .conftest import Cluster

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "spark.md").read_text()
QUERIES = DOCS / "flights.py"
FLIGHTS = 400
DEAD = 12


def blocks(section: str) -> list[str]:
    """The Python examples of one section."""
    (text,) = re.findall(rf"^## {section}.*?(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


async def give_up(address: str) -> None:
    """Turn the first messages of the group of `make run` into dead letters."""
    consumer = PushConsumer(
        address,
        group="demo-consumer",
        topics={"documented": "*"},
        consume_from=ConsumeFrom.FIRST_OFFSET,
    )
    seen = 0
    async with consumer, asyncio.timeout(60):
        async for message in consumer:
            await consumer.send_back(message, delay_level=-1)
            seen += 1
            if seen == DEAD:
                return


def test_the_documented_queries_run(
    spark: Any, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.topic("documented")
    cluster.topic("late-flights")
    bodies = [
        json.dumps(
            {
                "time_hour": f"2013-01-{1 + n % 9:02d}T{n % 24:02d}:00:00Z",
                "dep_delay": str(n) if n > DEAD else "NA",
            }
        ).encode()
        for n in range(FLIGHTS)
    ]
    cluster.send_bodies("documented", bodies)
    cluster.run(give_up(cluster.address))
    names: dict[str, Any] = {"local_session": lambda name: spark}
    shown = []
    for example in (QUERIES.read_text(), *blocks("Sink")):
        code = (
            example.replace("data/store", str(cluster.root / "store"))
            .replace("127.0.0.1:9876", cluster.address)
            .replace('"flights"', '"documented"')
            .replace("from congreve.spark.session import local_session", "")
        )
        exec(compile(code, "docs/spark.md", "exec"), names)
        shown.append(capsys.readouterr().out)
    queries, _ = shown
    assert "Tag7" in queries
    assert queries.count("documented") == DEAD
    sessions = spark.sql("SELECT sum(count) FROM sessions").first()[0]
    assert sessions == FLIGHTS
    late = spark.read.format("rocketmq").option("nameServer", cluster.address)
    assert late.option("topic", "late-flights").load().count() == FLIGHTS - 61
