"""The table of brokerStatus is collected for many requests together."""

import asyncio

from congreve.broker.admin.runtime_info import RuntimeInfo
from congreve.remoting.messages.codes import RequestCode

from ..tool import PULL_FIELDS, config_of, running


async def test_simultaneous_requests_get_the_same_figures(tmp_path, monkeypatch):
    collected = []
    collect = RuntimeInfo._general

    def counted(self):
        collected.append(1)
        return collect(self)

    monkeypatch.setattr(RuntimeInfo, "_general", counted)
    async with running(config_of(tmp_path)) as (tool, _):
        asked = (tool.json(RequestCode.GET_BROKER_RUNTIME_INFO) for _ in range(50))
        tables = await asyncio.gather(*asked)
    assert {table["table"]["brokerVersion"] for table in tables} == {"401"}
    assert 0 < len(collected) < 25


async def test_no_alarm_rings_for_pulls_that_wait_for_messages(tmp_path):
    async with running(config_of(tmp_path)) as (tool, _):
        await tool.create_topic("T")
        await tool.heart_beat("G", "T")
        pull = PULL_FIELDS | {"sysFlag": "6", "suspendTimeoutMillis": "30000"}
        waiting = [asyncio.ensure_future(tool.ask(11, pull)) for _ in range(5)]
        await asyncio.sleep(0.2)
        table = (await tool.json(RequestCode.GET_BROKER_RUNTIME_INFO))["table"]
        for each in waiting:
            each.cancel()
    for pool in ("send", "pull", "query"):
        assert int(table[f"{pool}ThreadPoolQueueSize"]) == 0
        assert int(table[f"{pool}ThreadPoolQueueCapacity"]) >= 10_000
