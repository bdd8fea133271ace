"""What /metrics, /healthz, /readyz and /varz of a broker answer."""

import asyncio
import json
import re
import threading
from pathlib import Path

import pytest

from congreve.broker.broker import Broker
from congreve.broker.errors import BrokerError
from congreve.broker.metrics.own_names import cpu_by_thread
from congreve.engine.store import MessageStore
from congreve.remoting.messages.codes import RequestCode

from ..pop.popping import Member
from ..tool import commit, config_of, running
from .scrapes import get, of, scrape

EXPORTER_NAMES = Path(__file__).with_name("exporter_names.txt").read_text().split()
BOARD = Path(__file__).parents[3] / "deploy/grafana/congreve.json"


def config(root, **settings):
    return config_of(root, **{"metrics_port": 0} | settings)


async def test_metrics_have_no_port_by_default(tmp_path):
    async with running(config_of(tmp_path)) as (_, broker):
        assert broker.config.metrics_port == -1
    assert config_of(tmp_path).metrics_address == "127.0.0.1"


async def test_the_metrics_port_listens_only_on_loopback(tmp_path):
    async with running(config(tmp_path)) as (_, broker):
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.2", broker.config.metrics_port)


@pytest.mark.parametrize("open_metrics", [False, True])
async def test_the_prometheus_parser_reads_all_metrics(tmp_path, open_metrics):
    async with running(config(tmp_path)) as (tool, broker):
        await tool.create_topic('T-"')
        await tool.create_topic("T")
        await tool.send("T")
        await tool.heart_beat("G", "T")
        await tool.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit("G", "T", 0))
        series = await scrape(broker.config.metrics_port, open_metrics=open_metrics)
    assert of(series, "rocketmq_messages_in_total", topic="T") == 1
    assert of(series, "rocketmq_consumer_connections", consumer_group="G") == 1


async def test_all_metric_names_of_the_exporter_exist(tmp_path):
    async with running(config(tmp_path)) as (_, broker):
        _, text = await get(broker.config.metrics_port, "/metrics")
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    assert len(EXPORTER_NAMES) == 89
    assert {name: types.get(name) for name in EXPORTER_NAMES} == dict.fromkeys(
        EXPORTER_NAMES, "gauge"
    )


async def test_metrics_count_sends_and_commits(tmp_path):
    async with running(config(tmp_path)) as (tool, broker):
        await tool.create_topic("T")
        for _ in range(5):
            await tool.send("T", b"x" * 100)
        await tool.heart_beat("G", "T")
        await tool.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit("G", "T", 2))
        series = await scrape(broker.config.metrics_port)
        size = broker.store.log.max_offset - broker.store.log.min_offset
    group = {"group": "G", "topic": "T"}
    native = {"consumer_group": "G", "topic": "T"}
    assert of(series, "rocketmq_producer_offset", topic="T") == 5
    assert of(series, "rocketmq_messages_in_total", topic="T") == 5
    assert of(series, "rocketmq_throughput_in_total", topic="T") == size
    assert of(series, "rocketmq_group_diff", countOfOnlineConsumers="1", msgModel="1", **group) == 3
    assert of(series, "rocketmq_consumer_offset", **group) == 2
    assert of(series, "rocketmq_consumer_lag_messages", **native) == 3
    assert of(series, "rocketmq_consumer_lag_latency", **native) >= 0
    assert of(series, "rocketmq_group_count", group="G") == 1
    assert of(series, "congreve_put_seconds_count") == 5
    assert sum(v for (n, _), v in series.items() if "_pmdt_" in n) == 5
    assert of(series, "congreve_flush_groups_total") > 0
    assert of(series, "congreve_ready") == 1


async def test_lag_in_time_is_that_of_the_oldest_waiting_message(tmp_path):
    from congreve.base.clock import ManualClock

    clock = ManualClock(1_700_000_000_000)
    async with running(config(tmp_path), clock=clock) as (tool, broker):
        await tool.create_topic("T")
        for _ in range(3):
            await tool.send("T")
            clock.advance(10_000)
        for consumed, lag_ms in ((0, 30_000), (1, 20_000), (2, 10_000), (3, 0)):
            await tool.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit("G", "T", consumed))
            series = await scrape(broker.config.metrics_port)
            assert (
                of(series, "rocketmq_consumer_lag_latency", consumer_group="G", topic="T")
                == of(series, "rocketmq_group_get_latency_by_storetime", group="G", topic="T")
                == lag_ms
            )


async def test_a_deleted_topic_has_no_series(tmp_path):
    async with running(config(tmp_path)) as (tool, broker):
        await tool.create_topic("T")
        await tool.send("T")
        await tool.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit("G", "T", 1))
        await tool.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
        series = await scrape(broker.config.metrics_port)
    assert not [labels for _, labels in series if ("topic", "T") in labels]


async def test_topics_beyond_the_limit_share_one_series(tmp_path):
    async with running(config(tmp_path, metrics_max_series=1_000)) as (tool, broker):
        for number in range(40):
            await tool.create_topic(f"T{number}")
            await tool.send(f"T{number}")
            await tool.ask(
                RequestCode.UPDATE_CONSUMER_OFFSET, commit("G", f"T{number}", number % 2)
            )
        series = await scrape(broker.config.metrics_port)
    name = "rocketmq_messages_in_total"
    assert sum(v for (n, _), v in series.items() if n == name) == 40
    assert of(series, name, topic="other") > 1
    lags = [v for (n, _), v in series.items() if n == "rocketmq_consumer_lag_messages"]
    assert sum(lags) == 20
    assert of(series, "congreve_metrics_folded") > 0
    rows = [labels for (n, labels) in series if n in (name, "rocketmq_consumer_lag_messages")]
    assert len(rows) <= 1_000 // 18


async def test_varz_has_the_same_figures_as_json(tmp_path):
    async with running(config(tmp_path)) as (tool, broker):
        await tool.create_topic("T")
        await tool.send("T")
        await tool.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit("G", "T", 0))
        _, text = await get(broker.config.metrics_port, "/varz")
    found = json.loads(text)
    assert found["broker"] == "b"
    assert found["trouble"] is None
    assert found["runtime"]["putMessageTimesTotal"] == 1
    (group,) = found["groups"]
    assert (group["group"], group["topic"], group["lag"]) == ("G", "T", 1)
    assert {topic["topic"]: topic["end"] for topic in found["topics"]}["T"] == 1


async def test_probes_follow_the_state_of_the_broker(tmp_path, monkeypatch):
    seen = []
    started = MessageStore.start
    loop = asyncio.get_running_loop()
    broker = Broker(config(tmp_path))

    def starting(store, **how):
        asked = get(broker.config.metrics_port, "/readyz")
        seen.append(asyncio.run_coroutine_threadsafe(asked, loop).result(20))
        started(store, **how)

    async def save(saved):
        seen.append(await get(broker.config.metrics_port, "/readyz"))
        await stopped()

    monkeypatch.setattr(MessageStore, "start", starting)
    async with broker:
        port = broker.config.metrics_port
        assert await get(port, "/healthz") == (200, "ok\n")
        assert await get(port, "/readyz") == (200, "ok\n")
        broker.store.health.set_disk_full("the disk is full")
        assert await get(port, "/readyz") == (503, "the disk is full\n")
        assert await get(port, "/healthz") == (200, "ok\n")
        assert of(await scrape(port), "congreve_ready") == 0
        broker.store.health.set_disk_full(None)
        assert await get(port, "/readyz") == (200, "ok\n")
        assert (await get(port, "/other"))[0] == 404
        stopped = broker.managers.stop
        monkeypatch.setattr(broker.managers, "stop", lambda: save(broker))
    assert seen == [(503, "the broker is starting\n"), (503, "the broker is stopping\n")]
    with pytest.raises(OSError, match="refused"):
        await get(port, "/healthz")


async def test_the_error_for_a_metrics_port_in_use_names_it(tmp_path):
    async with running(config(tmp_path / "one")) as (_, broker):
        used = broker.config.metrics_port
        with pytest.raises(BrokerError, match=rf"127.0.0.1:{used} \(metricsPort\)"):
            async with Broker(config(tmp_path / "two", metrics_port=used)):
                pass


async def test_the_grafana_board_asks_for_metrics_that_exist(tmp_path):
    async with running(config(tmp_path)) as (tool, broker):
        await tool.create_topic("T")
        await Member(tool).pop()
        _, text = await get(broker.config.metrics_port, "/metrics")
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    histograms = {
        f"{name}_{part}"
        for name, kind in types.items()
        if kind == "histogram"
        for part in ("bucket", "count", "sum")
    }
    panels = json.loads(BOARD.read_text())["panels"]
    asked = {
        name
        for panel in panels
        for target in panel["targets"]
        for name in re.findall(r"\b(?:rocketmq|congreve)_\w+", target["expr"])
    }
    assert len(panels) > 15 and len(asked) > 20
    assert asked <= types.keys() | histograms


def test_threads_that_come_and_go_share_one_series() -> None:
    begun, end = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        end.wait(30)

    thread = threading.Thread(target=work)
    before = {name for name, _ in cpu_by_thread(1.0)}
    thread.start()
    begun.wait(30)
    assert {name for name, _ in cpu_by_thread(1.0)} == before
    assert "others" in before and thread.name not in before
    end.set()
    thread.join()


async def test_a_scrape_adds_no_series(tmp_path):
    async with running(config(tmp_path)) as (_, broker):
        seen = [await get(broker.config.metrics_port, "/metrics") for _ in range(4)]
    threads = [set(re.findall(r'cpu_seconds_total{thread="([^"]+)"}', text)) for _, text in seen]
    assert threads[1] == threads[2] == threads[3]
