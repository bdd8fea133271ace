"""The board and the alert rules of deploy/, asked of a real Prometheus that scrapes a broker."""

import asyncio
import json
import re
import shutil
import socket
import subprocess
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

import congreve

from .scrapes import ask

DEPLOY = Path(__file__).parents[3] / "deploy"
BOARD = DEPLOY / "grafana" / "congreve.json"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
QUIET = re.compile(
    r"dlq|send_back|rollback|commit_messages|finish_message|delay_message|timing|half|rpc_latency"
    r"|_pop"
)
"""Metrics without a series until the broker has had such messages or requests."""


def needs(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(name) is None, reason=f"needs {name}")


def board_expressions() -> list[str]:
    panels = json.loads(BOARD.read_text())["panels"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    return [each.replace("$instance", ".*") for each in expressions]


def alert_expressions() -> list[str]:
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    return [rule["expr"] for rule in group["rules"]]


@needs("promtool")
def test_the_rules_fire_when_they_should(tmp_path: Path) -> None:
    for command in (["check", "rules", ALERTS.name], ["test", "rules", "alerts_test.yml"]):
        run = subprocess.run(
            ["promtool", *command], cwd=ALERTS.parent, capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, run.stdout + run.stderr


@contextmanager
def prometheus(folder: Path, metrics_port: int) -> Iterator[int]:
    """A Prometheus that scrapes the port each second; yields its own port."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    scrape = {
        "job_name": "congreve",
        "static_configs": [{"targets": [f"127.0.0.1:{metrics_port}"]}],
    }
    conf = folder / "prometheus.yml"
    settings = {"global": {"scrape_interval": "1s"}, "rule_files": [str(ALERTS)]}
    conf.write_text(yaml.safe_dump({**settings, "scrape_configs": [scrape]}))
    process = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={conf}",
            f"--storage.tsdb.path={folder / 'series'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=error",
        ]
    )
    try:
        yield port
    finally:
        process.terminate()
        process.wait(30)


async def query(port: int, expression: str) -> list[Any]:
    path = "/api/v1/query?" + urllib.parse.urlencode({"query": expression})
    status, text = await asyncio.to_thread(ask, port, path)
    answer = json.loads(text)
    assert status == 200 and answer["status"] == "success", (expression, text)
    found: list[Any] = answer["data"]["result"]
    return found


@needs("prometheus")
async def test_the_board_and_the_alerts_have_answers(tmp_path: Path) -> None:
    async with asyncio.timeout(120):
        async with congreve.serve(tmp_path / "data", metricsPort=0) as node:
            await _traffic(node)
            with prometheus(tmp_path, node.broker.config.metrics_port) as port:
                await _scraped_twice(port)
                for expression in board_expressions():
                    assert await query(port, expression) or QUIET.search(expression), expression
                for expression in alert_expressions():
                    await query(port, expression)
                (used,) = await query(port, board_expressions()[2])
                lags = await query(port, "rocketmq_consumer_lag_latency")
    assert {"consumer_group", "topic"} <= lags[0]["metric"].keys()
    df = subprocess.run(
        ["df", "--output=pcent", str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert abs(100 * float(used["value"][1]) - int(df.stdout.split()[-1].rstrip("%"))) < 1.5


async def _traffic(node: congreve.AsyncNode) -> None:
    async with node.producer("p") as producer:
        for _ in range(20):
            await producer.send(congreve.Message(topic="orders", body=b"hello"))
    async with node.consumer("c", {"orders": "*"}) as consumer:
        async for message in consumer:
            consumer.done(message)
            break


async def _scraped_twice(port: int) -> None:
    while True:
        try:
            found = await query(port, "count_over_time(congreve_ready[1m])")
        except OSError:
            found = []
        if found and int(found[0]["value"][1]) >= 3:
            return
        await asyncio.sleep(0.3)
